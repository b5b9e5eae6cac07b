//! Requests with `Idempotency-Key` or `If-Match`.

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::world::{World, read};

fn post(world: &World, path: &str, key: &str, body: &Value) -> RequestBuilder {
    world.request("POST", path).header("idempotency-key", key).json(body)
}

fn is_replay(response: &Response) -> bool {
    response.headers().get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// Sends a request twice with one key. The responses must be equal except for what changes by
/// itself.
async fn twice(world: &World, path: &str, key: &str, body: Value) -> Value {
    let first = post(world, path, key, &body).send().await.unwrap();
    assert!(!is_replay(&first), "{path}");
    let (status, made) = read(first).await;
    assert_eq!(status, 201, "{path}: {made}");
    let again = post(world, path, key, &body).send().await.unwrap();
    assert!(is_replay(&again), "{path} ignores the key");
    let (status_again, made_again) = read(again).await;
    assert_eq!((status_again, without_use(made_again)), (status, without_use(made.clone())), "{path}");
    made
}

/// Removes the times of the last use, which change without a request.
fn without_use(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != "last_active_at");
            Value::Object(kept.map(|(name, value)| (name, without_use(value))).collect())
        }
        Value::Array(values) => values.into_iter().map(without_use).collect(),
        other => other,
    }
}

#[tokio::test]
async fn a_retry_returns_the_first_result_on_every_route_that_makes_something() {
    let world = World::new().await;
    let id = world.named("web").await;
    twice(&world, "/v1/sandboxes", "a", json!({"image": "base", "name": "second"})).await;
    let snapshot = twice(&world, "/v1/sandboxes/web/checkpoint", "b", json!({"kind": "memory"})).await;
    let snapshot = snapshot["id"].as_str().unwrap().to_owned();
    twice(&world, "/v1/sandboxes/web/clone", "c", json!({})).await;
    let forked = twice(&world, "/v1/sandboxes/web/fork", "d", json!({"count": 2})).await;
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap();
    twice(&world, "/v1/sandboxes/web/holds", "e", json!({"ttl_secs": 60, "reason": "work"})).await;
    twice(&world, &format!("/v1/snapshots/{snapshot}/files"), "f", json!({})).await;
    twice(&world, "/v1/volumes", "g", json!({"name": "data", "size_bytes": 64 << 20})).await;
    let pool = json!({"name": "workers", "image": "base", "ready": 1});
    twice(&world, "/v1/pools", "p", pool).await;
    twice(&world, "/v1/pools/workers/claim", "q", json!({"max_wait_secs": 100})).await;
    twice(&world, "/v1/webhooks", "h", json!({"url": "http://93.184.215.14/", "kinds": []})).await;
    for (path, body) in [
        ("/v1/sandboxes/web/rewind".to_owned(), json!({"to": snapshot, "keep": "forever"})),
        (format!("/v1/sandboxes/{child}/promote"), json!({"keep": "forever"})),
    ] {
        let first = post(&world, &path, &path, &body).send().await.unwrap();
        let first = read(first).await;
        assert_eq!(first.0, 200, "{path}: {}", first.1);
        let again = post(&world, &path, &path, &body).send().await.unwrap();
        assert!(is_replay(&again), "{path} ignores the key");
        assert_eq!(read(again).await.1["future"], first.1["future"], "{path}");
    }
    world.post("/v1/sandboxes/second/terminate", Value::Null).await;
    let over = world.named("over").await;
    world.post("/v1/sandboxes/over/checkpoint", json!({})).await;
    world.post("/v1/sandboxes/over/terminate", Value::Null).await;
    twice(&world, &format!("/v1/sandboxes/{over}/restart"), "i", json!({})).await;
    let archive = world.request("GET", &format!("/v1/snapshots/{snapshot}/export")).send().await.unwrap();
    let archive = archive.bytes().await.unwrap();
    let import = || world.request("POST", "/v1/snapshots/import").header("idempotency-key", "j").body(archive.clone());
    let imported = read(import().send().await.unwrap()).await;
    assert_eq!(imported.0, 201, "{}", imported.1);
    let again = import().send().await.unwrap();
    assert!(is_replay(&again));
    assert_eq!(read(again).await, imported);
    let (_, key) = read(post(&world, "/v1/keys", "k", &json!({"scope": "full"})).send().await.unwrap()).await;
    let again = read(post(&world, "/v1/keys", "k", &json!({"scope": "full"})).send().await.unwrap()).await;
    assert_eq!((again.0, &again.1["code"]), (409, &json!("conflict")), "{}", again.1);
    assert!(again.1["detail"].as_str().unwrap().contains(key["id"].as_str().unwrap()), "{}", again.1);
    assert_eq!(world.get(&format!("/v1/sandboxes/{id}")).await["state"], "running");
    world.end().await;
}

#[tokio::test]
async fn a_retry_by_name_is_answered_after_the_sandbox_was_terminated() {
    let world = World::new().await;
    world.named("web").await;
    let body = json!({});
    let first = read(post(&world, "/v1/sandboxes/web/checkpoint", "a", &body).send().await.unwrap()).await;
    world.post("/v1/sandboxes/web/terminate", Value::Null).await;
    let again = read(post(&world, "/v1/sandboxes/web/checkpoint", "a", &body).send().await.unwrap()).await;
    assert_eq!(again, first);
    let other = read(post(&world, "/v1/sandboxes/web/checkpoint", "b", &body).send().await.unwrap()).await;
    assert_eq!(other.0, 404, "{}", other.1);
    world.end().await;
}

#[tokio::test]
async fn a_key_that_cannot_be_honoured_is_refused() {
    let world = World::new().await;
    world.named("web").await;
    let create = json!({"image": "base"});
    assert_eq!(post(&world, "/v1/sandboxes", "a", &create).send().await.unwrap().status(), 201);
    for (path, key, body, status, text) in [
        ("/v1/sandboxes", "a", json!({"image": "base", "name": "x"}), 422, "was used for another request"),
        ("/v1/volumes", "a", json!({"name": "data"}), 422, "was used for another request"),
        ("/v1/sandboxes", "", create.clone(), 400, "1 to 255"),
        ("/v1/sandboxes", &"x".repeat(256), create.clone(), 400, "1 to 255"),
        ("/v1/sandboxes/web/exec", "b", json!({"command": ["true"]}), 400, "does not support Idempotency-Key"),
    ] {
        let (found, problem) = read(post(&world, path, key, &body).send().await.unwrap()).await;
        assert_eq!(found, status, "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(text), "{problem}");
    }
    let doubled = post(&world, "/v1/sandboxes", "c", &create).header("idempotency-key", "d");
    assert_eq!(doubled.send().await.unwrap().status(), 400);
    let suspended = post(&world, "/v1/sandboxes/web/suspend", "e", &json!({})).send().await.unwrap();
    assert_eq!(suspended.status(), 200, "a suspend can be repeated as it is");
    assert_eq!(world.get("/v1/sandboxes").await["sandboxes"].as_array().unwrap().len(), 2);
    world.end().await;
}

#[tokio::test]
async fn two_callers_can_use_the_same_key() {
    let world = World::new().await;
    let key = world.post("/v1/keys", json!({"scope": "full"})).await["key"].as_str().unwrap().to_owned();
    let create = json!({"image": "base"});
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let other = || {
        let request = client.post(format!("http://{}/v1/sandboxes", world.address)).header("x-api-key", &key);
        request.header("idempotency-key", "a").json(&create)
    };
    let own = read(post(&world, "/v1/sandboxes", "a", &create).send().await.unwrap()).await;
    let others = read(other().send().await.unwrap()).await;
    assert_eq!((own.0, others.0), (201, 201), "{}", others.1);
    assert_ne!(own.1["id"], others.1["id"]);
    assert_eq!(read(other().send().await.unwrap()).await.1["id"], others.1["id"]);
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_is_changed_only_at_the_revision_that_the_caller_saw() {
    let world = World::new().await;
    let id = world.named("web").await;
    let path = format!("/v1/sandboxes/{id}");
    let shown = world.request("GET", &path).send().await.unwrap();
    let seen = shown.headers()["etag"].to_str().unwrap().to_owned();
    let (_, sandbox) = read(shown).await;
    assert_eq!(seen, format!("\"{}\"", sandbox["revision"]));
    let at = |method: &str, path: &str, tag: &str| world.request(method, path).header("if-match", tag);
    let suspend = format!("{path}/suspend");
    let suspended = at("POST", &suspend, &seen).send().await.unwrap();
    let newer = suspended.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(suspended.status(), 200);
    assert_ne!(newer, seen);
    let resume = format!("{path}/resume");
    for (method, path) in [("POST", resume.as_str()), ("DELETE", &path), ("POST", &format!("{path}/terminate"))] {
        let (status, problem) = read(at(method, path, &seen).send().await.unwrap()).await;
        assert_eq!((status, &problem["code"]), (412, &json!("conflict")), "{method} {path}: {problem}");
    }
    assert_eq!(world.get(&path).await["state"], "suspended");
    assert_eq!(at("POST", &resume, "*").send().await.unwrap().status(), 200);
    for wrong in ["12", "\"x\"", "W/\"1\""] {
        assert_eq!(at("POST", &suspend, wrong).send().await.unwrap().status(), 400, "{wrong}");
    }
    let fork = at("POST", &format!("{path}/fork"), &newer).send().await.unwrap();
    assert_eq!(fork.status(), 400, "a fork does not change one sandbox");
    world.post(&format!("{path}/terminate"), Value::Null).await;
    assert_eq!(at("DELETE", &path, &newer).send().await.unwrap().status(), 412);
    world.end().await;
}
