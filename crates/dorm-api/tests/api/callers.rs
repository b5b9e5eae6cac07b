//! Events, operations and sandboxes name the caller that asked for them, and no credential.

use dorm_engine_fake::SERVED;
use serde_json::{Value, json};

use crate::keys::{make, with};
use crate::world::{KEY, PATIENCE, World, eventually};

fn of_key(id: &str, name: &str) -> Value {
    json!({"door": "api", "credential": "api_key", "key": id, "key_name": name})
}

fn of(credential: &str) -> Value {
    json!({"door": "api", "credential": credential, "key": null, "key_name": null})
}

/// The kind, initiator and caller of each event.
async fn told(world: &World) -> Vec<(Value, Value, Value)> {
    let events = world.get("/v1/events").await["events"].as_array().unwrap().clone();
    let part = |event: &Value, name: &str| event[name].clone();
    events.iter().map(|event| (part(event, "kind"), part(event, "initiator"), part(event, "caller"))).collect()
}

#[tokio::test]
async fn two_keys_of_a_project_see_which_of_them_asked() {
    let world = World::new().await;
    let created = world.owners("POST", "/v1/sandboxes").json(&json!({"image": "base", "name": "web"}));
    assert_eq!(created.send().await.unwrap().status(), 201);
    let (ci, ci_key) = make(&world, json!({"name": "ci"})).await;
    let (nameless, nameless_key) = make(&world, json!({})).await;
    assert_eq!(with(&world, &ci_key, "POST", "/v1/sandboxes/web/suspend").await.0, 200);
    assert_eq!(with(&world, &nameless_key, "POST", "/v1/sandboxes/web/resume").await.0, 200);
    assert_eq!(world.call("DELETE", &format!("/v1/keys/{ci}"), Value::Null).await.0, 204);
    world.post("/v1/sandboxes/web/terminate", Value::Null).await;
    // A key that was removed is still named.
    let expected = [
        (of("owner_socket"), &["created", "started"][..]),
        (of_key(&ci, "ci"), &["suspending", "suspended"]),
        (of_key(&nameless, ""), &["resuming", "resumed"]),
        (of("owner_key"), &["terminating", "terminated"]),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .flat_map(|(caller, kinds)| kinds.iter().map(move |kind| (json!(kind), json!("user"), caller.clone())))
        .collect();
    assert_eq!(told(&world).await, expected);
    for key in [nameless_key.as_str(), KEY] {
        let (_, seen) = with(&world, key, "GET", "/v1/operations").await;
        let callers: Vec<_> = seen["operations"].as_array().unwrap().iter().map(|one| one["caller"].clone()).collect();
        assert_eq!(callers, [of("owner_key"), of_key(&nameless, ""), of_key(&ci, "ci"), of("owner_socket")]);
        let (_, seen) = with(&world, key, "GET", "/v1/sandboxes?state=terminated").await;
        assert_eq!(seen["sandboxes"][0]["created_by"], of("owner_socket"));
    }
    // Neither a key nor its hash is recorded.
    let events = dorm_store::Store::events(&world.store, &Default::default()).await.unwrap();
    let text: String = events.iter().map(|record| dorm_store::codec::encode_event(&record.event).unwrap()).collect();
    let hashes = dorm_store::Store::api_keys(&world.store).await.unwrap().into_iter().map(|key| key.hash);
    assert!([KEY, &ci_key, &nameless_key].iter().all(|key| !text.contains(*key)), "{text}");
    assert!(hashes.into_iter().all(|hash| !text.contains(&format!("{hash:?}"))), "{text}");
}

#[tokio::test]
async fn a_key_for_one_sandbox_sees_who_asked_for_its_own() {
    let world = World::new().await;
    let (_, ci_key) = make(&world, json!({"name": "ci"})).await;
    world.named("mine").await;
    assert_eq!(with(&world, &ci_key, "POST", "/v1/sandboxes/mine/suspend").await.0, 200);
    let (_, key) = make(&world, json!({"scope": "sandbox", "sandbox": "mine"})).await;
    assert_eq!(with(&world, &key, "GET", "/v1/sandboxes/mine").await.1["created_by"], of("owner_key"));
    let (_, why) = with(&world, &key, "GET", "/v1/sandboxes/mine/why").await;
    assert!(why["because"][0]["says"].as_str().unwrap().contains("by a caller with the API key 'ci'"), "{why}");
    assert_eq!(with(&world, &key, "GET", "/v1/events").await.0, 403);
}

#[tokio::test]
async fn traffic_has_a_caller_on_private_ports_alone() {
    let world = World::new().await;
    let (ci, ci_key) = make(&world, json!({"name": "ci"})).await;
    for name in ["private", "public"] {
        let id = world.create(json!({"image": "base", "name": name, "port_access": name})).await;
        world.start(&id, json!({"argv": ["serve", "8080"]})).await;
        eventually("it listens", async || visit(&world, &id, "x-api-key", KEY).await == SERVED).await;
        let token = world.get(&format!("/v1/sandboxes/{id}/ports/8080")).await["token"].as_str().unwrap().to_owned();
        let (by_key, by_token) = match name {
            "private" => (of_key(&ci, "ci"), of("port_token")),
            _ => (Value::Null, Value::Null),
        };
        for (header, value, caller) in [("x-api-key", &ci_key, by_key), ("x-dormouse-token", &token, by_token)] {
            world.post(&format!("/v1/sandboxes/{id}/suspend"), Value::Null).await;
            assert_eq!(visit(&world, &id, header, value).await, SERVED, "{name}, {header}");
            let last = told(&world).await.pop().unwrap();
            assert_eq!(last, (json!("resumed"), json!("traffic"), caller), "{name}, {header}");
        }
    }
}

/// A request to a port with this header and no other credential.
async fn visit(world: &World, id: &str, header: &str, value: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{}/", world.address)).header("host", format!("8080-{id}.localhost"));
    request.header(header, value).timeout(PATIENCE).send().await.unwrap().text().await.unwrap()
}
