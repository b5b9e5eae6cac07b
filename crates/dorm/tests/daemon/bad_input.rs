//! Mistakes of callers: each gets a clear error, and nothing has changed.

use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::Place;

async fn refused(daemon: &Daemon, path: &str, body: Value, status: u16, word: &str) {
    let answer = daemon.try_ask(Method::POST, path, Some(body.clone())).await.unwrap();
    let text = answer.body.to_string();
    assert!(answer.status == status && text.contains(word), "{path} {body}: {} {text}", answer.status);
    assert!(answer.body["code"].is_string() && answer.body["detail"].is_string(), "{text}");
}

#[tokio::test]
async fn every_mistake_has_its_own_answer() {
    let place = Place::new();
    let daemon = place.daemon();
    let named = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let ephemeral = daemon.create(json!({ "image": "base" })).await.unwrap();
    let over = daemon.create(json!({ "image": "base" })).await.unwrap();
    daemon.act(&over, "terminate").await.unwrap();
    let tiny = json!({ "image": "base", "resources": { "memory_bytes": 1 } });
    let rows = [
        ("/sandboxes/aaaaaaaaaaaaaaaaaaaa/suspend".to_owned(), json!({}), 404, "aaaaaaaaaaaaaaaaaaaa"),
        ("/sandboxes".to_owned(), json!({ "name": "web", "image": "base" }), 409, named.as_str()),
        ("/sandboxes".to_owned(), json!({ "name": "Web!", "image": "base" }), 400, "Web!"),
        ("/sandboxes".to_owned(), json!({ "image": "nothing" }), 404, "nothing"),
        ("/sandboxes".to_owned(), tiny, 400, "memory_bytes"),
        ("/sandboxes".to_owned(), json!({ "image": "base", "colour": "red" }), 400, "colour"),
        ("/sandboxes".to_owned(), json!({ "snapshot": "aaaaaaaaaaaaaaaaaaaa" }), 404, "aaaaaaaaaaaaaaaaaaaa"),
        (format!("/sandboxes/{ephemeral}/suspend"), json!({}), 409, "name"),
        (format!("/sandboxes/{over}/resume"), json!({}), 410, "terminated"),
        (format!("/sandboxes/{over}/exec"), json!({ "argv": ["true"] }), 410, "terminated"),
        (format!("/sandboxes/{named}/exec"), json!({ "argv": ["no-such-command"] }), 400, "no-such-command"),
        (format!("/sandboxes/{named}/exec"), json!({ "argv": ["true"], "user": "nobody-here" }), 404, "nobody-here"),
    ];
    for (path, body, status, word) in rows {
        refused(daemon, &path, body, status, word).await;
    }
    assert_eq!(daemon.act(&named, "resume").await.unwrap()["state"], "running");
    daemon.act(&named, "suspend").await.unwrap();
    refused(daemon, &format!("/sandboxes/{named}/exec"), json!({ "argv": ["true"] }), 409, "resume").await;
    let path = format!("/sandboxes/{ephemeral}/files?path=/tmp/%ff");
    let answer = daemon.try_ask(Method::GET, &path, None).await.unwrap();
    assert_eq!(answer.status, 400, "a path that is not UTF-8 is not replaced by another: {}", answer.body);
    let list = daemon.get("/sandboxes?limit=100").await.unwrap();
    assert_eq!(list["sandboxes"].as_array().unwrap().len(), 3, "refusals leave no records");
    place.end(&[]).await;
}

#[tokio::test]
async fn without_the_key_nothing_is_answered() {
    let place = Place::new();
    let daemon = place.daemon();
    let url = format!("{}/v1/sandboxes", daemon.address());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    assert_eq!(client.get(&url).bearer_auth("wrong").send().await.unwrap().status(), 401);
    place.end(&[]).await;
}

#[tokio::test]
async fn binary_output_comes_back_unharmed() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    let program = "import sys; sys.stdout.buffer.write(bytes(range(256)))";
    let asked = json!({ "argv": ["python3", "-c", program] });
    let answer = daemon.post(&format!("/sandboxes/{id}/exec"), asked).await.unwrap();
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = engine.decode(answer["stdout"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, (0..=255).collect::<Vec<u8>>(), "{answer}");
    place.end(&[]).await;
}
