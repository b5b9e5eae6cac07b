//! Keys, routing, and the answers of the proxy.

use dorm_service::{ApiKeySpec, KeyForm};
use dorm_store::KeyScope;
use serde_json::{Value, json};

use crate::world::{KEY, World};

#[tokio::test]
async fn a_request_needs_a_known_key() {
    let world = World::new().await;
    assert_eq!(world.send(world.request("GET", "/health")).await.status, 200);
    for request in [
        world.request("GET", "/v2/sandboxes"),
        world.request("GET", "/v2/sandboxes").header("x-api-key", "e2b_00"),
        world.request("POST", "/v2/sandboxes").header("x-api-key", ""),
        world.request("GET", "/nowhere"),
    ] {
        assert_eq!(world.send(request).await.refusal().0, 401);
    }
    assert_eq!(world.get("/nowhere").await.refusal().0, 404);
    let bearer = world.request("GET", "/v2/sandboxes").header("authorization", format!("Bearer {KEY}"));
    assert_eq!(world.send(bearer).await.status, 200);
}

#[tokio::test]
async fn a_foreign_host_is_not_answered() {
    let world = World::new().await;
    let request = world.request("GET", "/v2/sandboxes").header("x-api-key", KEY).header("host", "evil.test");
    assert_eq!(world.send(request).await.refusal().0, 421);
}

#[tokio::test]
async fn parts_of_the_cloud_are_refused_by_name() {
    let world = World::new().await;
    for path in ["/secrets", "/secrets/one", "/teams"] {
        let (status, message) = world.get(path).await.refusal();
        assert_eq!(status, 501);
        assert!(message.contains("docs/e2b.md"), "{message}");
    }
}

#[tokio::test]
async fn a_port_of_an_absent_sandbox_answers_to_the_letter() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    world.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await;
    for id in [id.as_str(), "nothing", "i0123456789"] {
        let answer = world.port(id, "8000", "/").await;
        let expected = format!(r#"{{"sandboxId":"{id}","message":"The sandbox was not found","code":502}}"#);
        assert_eq!((answer.status, answer.text.as_str()), (502, expected.as_str()));
    }
}

#[tokio::test]
async fn a_paused_sandbox_without_auto_resume_is_not_found_by_traffic() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await;
    let answer = world.port(&id, "8000", "/").await;
    assert_eq!((answer.status, &answer.json()["message"]), (502, &json!("The sandbox was not found")));
    assert_eq!(world.describe(&id).await["state"], "paused");
}

#[tokio::test]
async fn a_closed_port_says_that_the_sandbox_runs() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    let answer = world.port(&id, "8000", "/").await;
    let message = "The sandbox is running but port is not open";
    let expected = format!(r#"{{"sandboxId":"{id}","message":"{message}","port":8000,"code":502}}"#);
    assert_eq!((answer.status, answer.text.as_str()), (502, expected.as_str()));
}

#[tokio::test]
async fn the_headers_of_a_route_are_checked() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    for (sandbox, port) in [(id.as_str(), "0"), (id.as_str(), "70000"), (id.as_str(), "x"), ("A!", "8000")] {
        assert_eq!(world.port(sandbox, port, "/").await.refusal().0, 400, "{sandbox} {port}");
    }
    let alone = world.request("GET", "/").header("e2b-sandbox-id", &id);
    assert_eq!(world.send(alone).await.refusal().0, 400);
    let by_host = world.request("GET", "/").header("host", format!("8000-{id}.localhost:1"));
    assert_eq!(world.send(by_host).await.status, 502);
}

#[tokio::test]
async fn a_private_port_needs_the_traffic_token() {
    let world = World::new().await;
    let body = json!({ "templateID": "base", "network": { "allowPublicTraffic": false } });
    let created = world.call("POST", "/v2/sandboxes", body).await.json();
    let id = created["sandboxID"].as_str().unwrap();
    let ask = |token: Option<&str>| {
        let request = world.request("GET", "/").header("e2b-sandbox-id", id).header("e2b-sandbox-port", "8000");
        world.send(match token {
            Some(token) => request.header("e2b-traffic-access-token", token),
            None => request,
        })
    };
    let (status, message) = ask(None).await.refusal();
    assert_eq!(status, 403);
    assert!(message.ends_with("Token header 'e2b-traffic-access-token' is missing"), "{message}");
    let (status, message) = ask(Some("wrong")).await.refusal();
    assert_eq!(status, 403);
    assert!(message.ends_with("Provided token in header 'e2b-traffic-access-token' is invalid"), "{message}");
    assert_eq!(ask(created["trafficAccessToken"].as_str()).await.status, 502);
}

#[tokio::test]
async fn a_read_only_key_is_given_nothing_that_permits_a_change() {
    let world = World::new().await;
    let body = json!({ "templateID": "base", "secure": true, "network": { "allowPublicTraffic": false } });
    let created = world.call("POST", "/v2/sandboxes", body).await.json();
    let volume = world.call("POST", "/volumes", json!({ "name": "data" })).await.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, volume_id) = (text(&created["sandboxID"]), text(&volume["volumeID"]));
    let tokens = [&created["envdAccessToken"], &created["trafficAccessToken"], &volume["token"]].map(text);
    assert_eq!(world.describe(&id).await["envdAccessToken"], tokens[0]);
    let (_, key) = world
        .service
        .create_key(ApiKeySpec {
            name: "dashboard".to_owned(),
            scope: KeyScope::ReadOnly,
            lifetime: None,
            form: KeyForm::E2b,
        })
        .await
        .unwrap();
    let ask = |path: String| world.send(world.request("GET", &path).header("x-api-key", &key));
    let files = format!("/templates/base/files/{}", "0a".repeat(32));
    for (path, status) in [
        ("/v2/sandboxes".to_owned(), 200),
        ("/sandboxes".to_owned(), 200),
        (format!("/sandboxes/metrics?sandbox_ids={id}"), 200),
        (format!("/sandboxes/{id}"), 200),
        (format!("/v2/sandboxes/{id}"), 200),
        (format!("/sandboxes/{id}/metrics"), 200),
        (format!("/sandboxes/{id}/logs"), 200),
        (format!("/v2/sandboxes/{id}/logs"), 200),
        ("/snapshots".to_owned(), 200),
        ("/templates".to_owned(), 200),
        ("/volumes".to_owned(), 200),
        (format!("/volumes/{volume_id}"), 200),
        (files, 403),
    ] {
        let answer = ask(path.clone()).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let has_token = tokens.iter().any(|token| answer.text.contains(token)) || answer.text.contains("ticket=");
        assert!(!has_token, "{path}: {answer:?}");
    }
    // The token for the contents of a volume is one that only reads.
    let token = text(&ask(format!("/volumes/{volume_id}")).await.json()["token"]);
    let path = format!("/volumecontent/{volume_id}/file?path=/new");
    let write = world.request("PUT", &path).header("authorization", format!("Bearer {token}")).body("x");
    assert_eq!(world.send(write).await.status, 403);
}
