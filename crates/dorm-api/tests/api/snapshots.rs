//! Snapshots with names, and what sandboxes made from snapshots inherit.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn a_named_snapshot_serves_as_an_image_and_is_found_by_its_name() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "egress": "closed", "port_access": "private"})).await;
    let path = format!("/v1/sandboxes/{id}/checkpoint");
    let taken = world.post(&path, json!({"name": "team/my-snap:v2"})).await;
    assert_eq!(taken["name"], "team/my-snap:v2");
    let inherited = json!({
        "egress": "closed", "port_access": "private", "port_host": null, "port_rules": {}, "start": false
    });
    assert_eq!(taken["inherited"], inherited);
    let (status, refused) = world.call("POST", &path, json!({"name": "team/my-snap:v2"})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")), "{refused}");
    let holder = format!("the name 'team/my-snap:v2' is taken by snapshot {}", taken["id"].as_str().unwrap());
    assert_eq!(refused["detail"], holder);

    let by_name = "/v1/snapshots/team%2Fmy-snap:v2";
    assert_eq!(world.get(by_name).await["id"], taken["id"]);
    let listed = world.get("/v1/snapshots?name=team/my-snap:v2").await;
    assert_eq!((listed["snapshots"].as_array().unwrap().len(), &listed["snapshots"][0]["id"]), (1, &taken["id"]));
    assert_eq!(world.get("/v1/snapshots?name=other").await["snapshots"], json!([]));

    world.post(&format!("/v1/sandboxes/{id}/terminate"), Value::Null).await;
    let made = world.post("/v1/sandboxes", json!({"image": "team/my-snap:v2"})).await;
    assert_eq!((&made["snapshot"], &made["restored"]), (&taken["id"], &json!("filesystem")));
    assert_eq!((&made["egress"], &made["port_access"]), (&json!("closed"), &json!("private")));
    let made = made["id"].as_str().unwrap();
    world.post(&format!("/v1/sandboxes/{made}/terminate"), Value::Null).await;
    assert_eq!(world.call("DELETE", by_name, Value::Null).await.0, 204);
    assert_eq!(world.call("GET", by_name, Value::Null).await.0, 404);
    assert_eq!(world.call("POST", "/v1/sandboxes", json!({"image": "team/my-snap:v2"})).await.0, 404);
}

#[tokio::test]
async fn each_inherited_setting_can_be_replaced() {
    let world = World::new().await;
    let rules = json!({"8080": {"access": "public"}});
    let asked = json!({
        "image": "base", "egress": "closed", "port_access": "private", "port_host": "localhost:{port}",
        "port_rules": rules,
    });
    let id = world.create(asked).await;
    for kind in ["filesystem", "memory"] {
        let taken = world.post(&format!("/v1/sandboxes/{id}/checkpoint"), json!({"kind": kind})).await;
        let from = json!({"snapshot": taken["id"]});
        let settings = async |more: Value| {
            let mut asked = from.clone();
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let made = world.post("/v1/sandboxes", asked).await;
            json!([made["egress"], made["port_access"], made["port_host"], made["port_rules"]])
        };
        let host = "localhost:{port}";
        assert_eq!(settings(json!({})).await, json!(["closed", "private", host, rules]));
        assert_eq!(settings(json!({"egress": "public"})).await, json!(["public", "private", host, rules]));
        assert_eq!(settings(json!({"port_access": "public"})).await, json!(["closed", "public", host, rules]));
        assert_eq!(settings(json!({"port_host": ""})).await, json!(["closed", "private", null, rules]));
        assert_eq!(settings(json!({"port_rules": {}})).await, json!(["closed", "private", host, {}]));
    }
}

#[tokio::test]
async fn what_is_no_name_for_a_snapshot_is_refused() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/checkpoint");
    for wrong in ["", "a b", "a:b:c", "../a", "deadbeef", "docker.io/library/python", "abcdefghijkmnpqrstuv", "@a/b"] {
        let (status, refused) = world.call("POST", &path, json!({"name": wrong})).await;
        assert_eq!((status, &refused["code"]), (400, &json!("invalid_argument")), "{wrong}: {refused}");
        let (status, _) = world.call("GET", &format!("/v1/snapshots?name={wrong}"), Value::Null).await;
        assert_eq!(status, 400, "{wrong}");
    }
    let (status, refused) = world.call("POST", &path, json!({"name": "base"})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")), "{refused}");
    assert_eq!(world.get("/v1/snapshots").await["snapshots"], json!([]));
}

#[tokio::test]
async fn pools_and_templates_take_the_name_of_a_snapshot() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let taken = world.post(&format!("/v1/sandboxes/{id}/checkpoint"), json!({"name": "my-snap"})).await;
    let pool = world.post("/v1/pools", json!({"name": "workers", "image": "my-snap", "ready": 0})).await;
    assert_eq!((&pool["snapshot"], &pool["image"]), (&taken["id"], &Value::Null));
    let template = world.ok("POST", "/v1/templates", json!({"name": "app", "image": "my-snap"})).await;
    let version = &template["tags"]["latest"];
    assert_eq!((&version["snapshot"], &version["start"]), (&taken["id"], &Value::Null));
}
