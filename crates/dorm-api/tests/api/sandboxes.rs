use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn a_sandbox_is_told_as_it_is_from_create_to_terminate() {
    let world = World::new().await;
    let asked = json!({
        "image": "base", "name": "web", "env": {"TOKEN": "hunter2"}, "labels": {"team": "a"},
        "resources": {"memory_bytes": 268_435_456}, "egress": {"allow": ["198.51.100.0/24"]},
        "timeout_secs": 3600.5, "idle_timeout_secs": 600, "wake": "never",
    });
    let (status, made) = world.call("POST", "/v1/sandboxes", asked).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().unwrap();
    for (pointer, expected) in [
        ("/name", json!("web")),
        ("/project", json!("local")),
        ("/state", json!("running")),
        ("/residence", json!("running")),
        ("/generation", json!(1)),
        ("/snapshot", Value::Null),
        ("/resources/memory_bytes", json!(268_435_456)),
        ("/resources/cpu_millis", json!(1000)),
        ("/egress", json!({"allow": ["198.51.100.0/24"]})),
        ("/env", json!(["TOKEN"])),
        ("/on_timeout", json!("suspend")),
        ("/suspendable", json!(true)),
        ("/wake", json!("never")),
        ("/timeout_secs", json!(3600.5)),
        ("/idle_timeout_secs", json!(600.0)),
        ("/labels", json!({"team": "a"})),
        ("/sleep_image", Value::Null),
        ("/cause", Value::Null),
    ] {
        assert_eq!(made.pointer(pointer), Some(&expected), "{pointer}");
    }
    assert!(made["expires_at"].as_str().unwrap().ends_with('Z'), "{made}");
    assert!(!made.to_string().contains("hunter2"));
    assert_eq!(world.get("/v1/sandboxes/web").await["id"], id);

    let asleep = world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    assert_eq!((&asleep["state"], &asleep["residence"]), (&json!("suspended"), &json!("parked")));
    assert_eq!(asleep["sleep_image"]["generation"], 1);
    assert!(asleep["sleep_image"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(world.post("/v1/sandboxes/web/evict", Value::Null).await["residence"], "evicted");
    assert_eq!(world.get(&format!("/v1/sandboxes/{id}/usage")).await["memory_bytes"], 0);
    let awake = world.post("/v1/sandboxes/web/resume", Value::Null).await;
    assert_eq!((&awake["state"], &awake["generation"]), (&json!("running"), &json!(2)));
    assert!(world.get("/v1/sandboxes/web/usage").await["memory_bytes"].as_u64().unwrap() > 0);

    let over = world.post("/v1/sandboxes/web/terminate", Value::Null).await;
    assert_eq!(over["cause"], json!({"kind": "requested", "reason": null}));
    assert_eq!(world.get(&format!("/v1/sandboxes/{id}")).await["state"], "terminated");
    assert_eq!(world.ok("DELETE", &format!("/v1/sandboxes/{id}"), Value::Null).await["state"], "terminated");
    let (status, gone) = world.call("POST", &format!("/v1/sandboxes/{id}/resume"), Value::Null).await;
    assert_eq!((status, &gone["code"]), (410, &json!("gone")), "{gone}");
    world.end().await;
}

#[tokio::test]
async fn time_limits_are_replaced_together() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "name": "a", "timeout_secs": 60, "idle_timeout_secs": 30})).await;
    let path = format!("/v1/sandboxes/{id}/timeouts");
    let changed = world.post(&path, json!({"idle_timeout_secs": 0.5e3})).await;
    assert_eq!((&changed["timeout_secs"], &changed["idle_timeout_secs"]), (&Value::Null, &json!(500.0)));
    let none = world.post(&path, json!({})).await;
    assert_eq!(none["expires_at"], Value::Null);
}

#[tokio::test]
async fn the_egress_is_replaced_while_a_sandbox_runs_and_while_it_is_suspended() {
    let world = World::new().await;
    world.create(json!({"image": "base", "name": "a"})).await;
    let path = "/v1/sandboxes/a/egress";
    let rules = json!({"rules": [{"deny": "203.0.113.0/24"}, {"allow": "*.example.com"}], "default": "public"});
    let changed = world.post(path, json!({"egress": {"ordered": rules}})).await;
    assert_eq!(changed["egress"], json!({"ordered": rules}));
    world.post("/v1/sandboxes/a/suspend", Value::Null).await;
    let changed = world.post(path, json!({"egress": "closed"})).await;
    assert_eq!((&changed["egress"], &changed["state"]), (&json!("closed"), &json!("suspended")));
    let resumed = world.post("/v1/sandboxes/a/resume", Value::Null).await;
    assert_eq!(resumed["egress"], "closed");
    let empty = world.post(path, json!({"egress": {"ordered": {"rules": []}}})).await;
    assert_eq!(empty["egress"], "closed", "one policy has one form");
    world.end().await;
}

#[tokio::test]
async fn a_list_is_filtered_and_comes_in_pages() {
    let world = World::new().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "y")] {
        world.create(json!({"image": "base", "name": name, "labels": {"l": label, "all": "1"}})).await;
    }
    world.post("/v1/sandboxes/c/suspend", Value::Null).await;
    let names = async |query: &str| {
        let page = world.get(&format!("/v1/sandboxes?{query}")).await;
        let mut names: Vec<String> = page["sandboxes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sandbox| sandbox["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names.concat()
    };
    for (query, expected) in [
        ("", "abc"),
        ("name=b", "b"),
        ("label=l%3Dy", "bc"),
        ("label=l=y&label=all=1&state=running", "b"),
        ("state=suspended", "c"),
        ("state=suspended,running", "abc"),
        ("state=terminated", ""),
        ("label=l=z", ""),
    ] {
        assert_eq!(names(query).await, expected, "{query}");
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = world.get(&format!("/v1/sandboxes?limit=2{after}")).await;
        seen.extend(page["sandboxes"].as_array().unwrap().iter().map(|sandbox| sandbox["id"].to_string()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((seen.len(), &sorted), (3, &seen));
}

#[tokio::test]
async fn a_checkpoint_is_listed_used_and_deleted() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "name": "source", "env": {"A": "1"}})).await;
    let (status, snapshot) = world.call("POST", "/v1/sandboxes/source/checkpoint", json!({"kind": "memory"})).await;
    assert_eq!((status, &snapshot["status"], &snapshot["source"]), (201, &json!("completed"), &json!(id)));
    let snapshot_id = snapshot["id"].as_str().unwrap();
    let mut listed = snapshot.clone();
    listed["alone_bytes"] = snapshot["bytes"].clone();
    listed["shared_bytes"] = json!(0);
    assert_eq!(world.get("/v1/snapshots").await["snapshots"], json!([listed]));
    listed["held_by"] = json!([]);
    assert_eq!(world.get(&format!("/v1/snapshots/{snapshot_id}")).await, listed);
    let resources = json!({"cpu_millis": 1000});
    let child = world.create(json!({"snapshot": snapshot_id, "name": "child", "resources": resources})).await;
    assert_eq!(world.get(&format!("/v1/sandboxes/{child}")).await["snapshot"], snapshot_id);

    let (status, cloned) = world.call("POST", "/v1/sandboxes/source/clone", json!({"name": "twin"})).await;
    assert_eq!((status, &cloned["sandbox"]["name"]), (201, &json!("twin")), "{cloned}");
    assert_eq!(cloned["sandbox"]["env"], json!(["A"]));
    assert_eq!(cloned["sandbox"]["snapshot"], cloned["snapshot"]["id"]);
    assert_eq!(world.call("DELETE", &format!("/v1/snapshots/{snapshot_id}"), Value::Null).await, (204, Value::Null));
    assert_eq!(world.call("GET", &format!("/v1/snapshots/{snapshot_id}"), Value::Null).await.0, 404);
    assert_eq!(world.get(&format!("/v1/sandboxes/{child}")).await["state"], "running");
}

#[tokio::test]
async fn a_checkpoint_is_of_files_unless_asked_otherwise_and_can_be_polled() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "name": "source"})).await;
    let (status, snapshot) = world.call("POST", "/v1/sandboxes/source/checkpoint", Value::Null).await;
    assert_eq!((status, &snapshot["kind"], &snapshot["status"]), (201, &json!("filesystem"), &json!("completed")));
    let (status, begun) = world.call("POST", "/v1/sandboxes/source/checkpoint", json!({"wait": false})).await;
    assert_eq!((status, &begun["status"], &begun["source"]), (202, &json!("in_progress"), &json!(id)));
    let path = format!("/v1/snapshots/{}", begun["id"].as_str().unwrap());
    loop {
        match world.get(&path).await["status"].as_str() {
            Some("in_progress") => tokio::task::yield_now().await,
            status => break assert_eq!(status, Some("completed")),
        }
    }
    let from = json!({"snapshot": begun["id"], "resources": {"memory_bytes": 1 << 30}});
    let child = world.create(from).await;
    let view = world.get(&format!("/v1/sandboxes/{child}")).await;
    assert_eq!((&view["restored"], &view["resources"]["memory_bytes"]), (&json!("filesystem"), &json!(1 << 30)));
    let (status, refused) = world.call("DELETE", &path, Value::Null).await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")), "{refused}");
    let asked = json!({"snapshot": begun["id"], "resources": {"disk_bytes": 1 << 30}});
    assert_eq!(world.call("POST", "/v1/sandboxes", asked).await.0, 400);
    let (status, refused) = world.call("POST", "/v1/sandboxes/source/checkpoint", json!({"kind": "disk"})).await;
    assert_eq!(status, 400, "{refused}");
}
