//! The life of a sandbox.

use serde_json::{Value, json};

use crate::world::{World, seconds};

#[tokio::test]
async fn a_sandbox_is_created_with_what_the_request_says() {
    let world = World::new().await;
    let body = json!({
        "templateID": "base", "timeout": 60, "autoPause": true, "autoResume": { "enabled": true },
        "metadata": { "user": "ann" }, "envVars": { "MODE": "test" },
        "network": { "allowPublicTraffic": false, "maskRequestHost": "localhost:${PORT}" },
        "unknownField": 1,
    });
    let created = world.call("POST", "/v2/sandboxes", body).await;
    assert_eq!(created.status, 201);
    let created = created.json();
    assert_eq!((&created["templateID"], &created["alias"]), (&json!("base"), &json!("base")));
    assert_eq!(created["envdVersion"], "0.6.13");
    assert!(created["domain"].as_str().unwrap().starts_with("localhost:"), "{created}");
    let (token, traffic) = (&created["envdAccessToken"], &created["trafficAccessToken"]);
    assert!(token.is_string() && traffic.is_string() && token != traffic);

    let detail = world.describe(created["sandboxID"].as_str().unwrap()).await;
    assert_eq!((&detail["state"], &detail["metadata"]["user"]), (&json!("running"), &json!("ann")));
    assert_eq!(detail["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
    let network = json!({ "allowPublicTraffic": false, "maskRequestHost": "localhost:${PORT}" });
    assert_eq!(detail["network"], network);
    assert_eq!(&detail["envdAccessToken"], token);
    assert_eq!(seconds(&detail["startedAt"], &detail["endAt"]), 60.0);
}

#[tokio::test]
async fn each_version_of_the_path_has_its_own_time_limit() {
    let world = World::new().await;
    for (path, expected) in [("/sandboxes", 15.0), ("/v2/sandboxes", 300.0)] {
        let created = world.call("POST", path, json!({ "templateID": "base" })).await.json();
        let detail = world.describe(created["sandboxID"].as_str().unwrap()).await;
        assert_eq!(seconds(&detail["startedAt"], &detail["endAt"]), expected, "{path}");
    }
}

#[tokio::test]
async fn a_request_that_makes_no_sense_creates_nothing() {
    let world = World::new().await;
    for (status, body) in [
        (400, json!({ "templateID": "base", "timeout": 0 })),
        (400, json!({ "templateID": "base", "timeout": -5 })),
        (400, json!({ "templateID": "base", "timeout": 9_000_000_000_000_i64 })),
        (400, json!({ "templateID": "base", "timeout": "soon" })),
        (400, json!({ "templateID": "base", "autoPauseMemory": false })),
        (400, json!({ "templateID": "base", "iam": { "tokens": {} } })),
        (400, json!({ "templateID": "base", "network": { "dnsServers": ["1.1.1.1"] } })),
        (400, json!({ "templateID": "base", "network": { "egressProxy": { "address": "a:1" } } })),
        (400, json!({ "templateID": "base", "network": { "allowOut": ["example.com"] } })),
        (400, json!({ "templateID": "base", "volumeMounts": [{ "name": "v", "path": "relative" }] })),
        (400, json!({ "templateID": "base", "envVars": { "A=B": "c" } })),
        (400, json!({ "timeout": 5 })),
        (404, json!({ "templateID": "nothing" })),
        (404, json!({ "templateID": "../../etc" })),
    ] {
        let answer = world.call("POST", "/v2/sandboxes", body.clone()).await;
        assert_eq!(answer.refusal().0, status, "{body}: {answer:?}");
    }
    let broken = world.request("POST", "/v2/sandboxes").header("x-api-key", crate::world::KEY).body("{\"templateID\"");
    assert_eq!(world.send(broken).await.refusal().0, 400);
    assert_eq!(world.get("/v2/sandboxes").await.json(), json!([]));
}

#[tokio::test]
async fn connect_extends_a_running_sandbox_and_never_shortens_its_time() {
    let world = World::new().await;
    let id = world.create(json!({ "timeout": 600 })).await;
    let before = world.describe(&id).await;
    for (timeout, left) in [(60, 600.0), (1200, 1200.0)] {
        let path = format!("/v2/sandboxes/{id}/connect");
        assert_eq!(world.call("POST", &path, json!({ "timeout": timeout })).await.status, 200);
        let after = world.describe(&id).await;
        let gained = seconds(&before["startedAt"], &after["endAt"]);
        assert!((left..left + 60.0).contains(&gained), "{timeout}: {gained}");
    }
}

#[tokio::test]
async fn a_paused_sandbox_keeps_its_settings_and_tokens() {
    let world = World::new().await;
    let asked = json!({ "autoPause": true, "autoResume": { "enabled": true }, "metadata": { "a": "b" },
        "network": { "allowPublicTraffic": false } });
    let id = world.create(asked).await;
    let before = world.describe(&id).await;
    let mut tokens: Vec<Value> = Vec::new();
    for _ in 0..10 {
        assert_eq!(world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await.status, 204);
        let paused = world.describe(&id).await;
        assert_eq!((&paused["state"], &paused["pauseMode"]), (&json!("paused"), &json!("full")));
        let connected = world.call("POST", &format!("/v2/sandboxes/{id}/connect"), Value::Null).await;
        assert_eq!(connected.status, 201);
        let connected = connected.json();
        tokens.push(json!([connected["envdAccessToken"], connected["trafficAccessToken"]]));
        let after = world.describe(&id).await;
        for key in ["metadata", "lifecycle", "network", "templateID", "alias", "cpuCount", "memoryMB"] {
            assert_eq!(before[key], after[key], "{key}");
        }
        let left = seconds(&after["startedAt"], &after["endAt"]);
        assert!((300.0..301.0).contains(&left), "{left}");
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0][0], before["envdAccessToken"]);
}

#[tokio::test]
async fn the_states_answer_as_the_protocol_says() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    let path = |verb: &str| format!("/sandboxes/{id}/{verb}");
    let (status, message) = world.call("POST", &path("resume"), json!({})).await.refusal();
    assert_eq!((status, message), (409, format!("Sandbox {id} is already running")));
    assert_eq!(world.call("POST", &path("pause"), json!({ "memory": false })).await.status, 204);
    assert_eq!(world.describe(&id).await["pauseMode"], "filesystem");
    let (status, message) = world.call("POST", &path("pause"), json!({})).await.refusal();
    assert_eq!((status, message), (409, format!("Error pausing sandbox - sandbox '{id}' is already paused")));
    assert_eq!(world.call("POST", &path("timeout"), json!({ "timeout": 5 })).await.refusal().0, 404);
    assert_eq!(world.call("POST", &path("snapshots"), json!({})).await.refusal().0, 409);
    assert_eq!(world.call("POST", &path("fork"), json!({})).await.refusal().0, 409);
    assert_eq!(world.call("PUT", &path("network"), json!({})).await.refusal().0, 404);
    assert_eq!(world.call("POST", &path("resume"), json!({})).await.status, 201);
    assert_eq!(world.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
    let gone = format!("Sandbox \"{id}\" doesn't exist or you don't have access to it");
    for (method, path) in [
        ("DELETE", format!("/sandboxes/{id}")),
        ("GET", format!("/sandboxes/{id}")),
        ("POST", format!("/v2/sandboxes/{id}/connect")),
        ("POST", path("pause")),
        ("POST", path("fork")),
        ("POST", path("snapshots")),
        ("GET", path("metrics")),
        ("GET", path("logs")),
        ("GET", "/sandboxes/NOT%2FAN%20ID".to_owned()),
    ] {
        let answer =
            world.call(method, &path, if method == "POST" { json!({ "timeout": 9 }) } else { Value::Null }).await;
        let (status, message) = answer.refusal();
        assert_eq!(status, 404, "{method} {path}");
        assert!(message == gone || path.contains("NOT"), "{message}");
    }
}

#[tokio::test]
async fn a_deadline_kills_or_pauses_as_the_request_says() {
    let world = World::new().await;
    for (auto_pause, memory, ends) in
        [(false, true, None), (true, true, Some("full")), (true, false, Some("filesystem"))]
    {
        let id = world.create(json!({ "autoPause": auto_pause, "autoPauseMemory": memory || !auto_pause })).await;
        let path = format!("/sandboxes/{id}/timeout");
        assert_eq!(world.call("POST", &path, json!({ "timeout": 0 })).await.status, 204);
        loop {
            let answer = world.get(&format!("/sandboxes/{id}")).await;
            match ends {
                None if answer.status == 404 => break,
                Some(mode) if answer.json()["pauseMode"] == mode => break,
                _ => tokio::task::yield_now().await,
            }
        }
    }
}

#[tokio::test]
async fn a_woken_sandbox_lives_for_five_minutes_whatever_time_limit_was_set_before() {
    let world = World::new().await;
    let id = world.create(json!({ "timeout": 60, "autoPause": true, "autoResume": { "enabled": true } })).await;
    for _ in 0..2 {
        assert_eq!(world.call("POST", &format!("/sandboxes/{id}/timeout"), json!({ "timeout": 0 })).await.status, 204);
        while world.describe(&id).await["pauseMode"] != "full" {
            tokio::task::yield_now().await;
        }
        // Any request for a port wakes it, also for one on which nothing listens.
        assert_eq!(world.port(&id, "8000", "/").await.status, 502);
        let woken = world.describe(&id).await;
        assert_eq!(woken["state"], "running");
        assert!(seconds(&woken["startedAt"], &woken["endAt"]) >= 299.0, "{woken}");
    }
}

#[tokio::test]
async fn an_idempotency_key_makes_one_sandbox() {
    let world = World::new().await;
    let send = |body: Value| {
        let request = world.request("POST", "/v2/sandboxes").header("x-api-key", crate::world::KEY);
        world.send(request.header("idempotency-key", "once-1").json(&body))
    };
    let first = send(json!({ "templateID": "base" })).await;
    let again = send(json!({ "templateID": "base" })).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.json()["sandboxID"], again.json()["sandboxID"]);
    let other = send(json!({ "templateID": "base", "timeout": 7 })).await;
    assert_eq!(other.status, 422);
    assert_eq!(other.json()["error_code"], "idempotency_request_mismatch");
}

#[tokio::test]
async fn two_connects_at_once_restore_a_sandbox_once() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await;
    let path = format!("/v2/sandboxes/{id}/connect");
    let (one, other) = tokio::join!(world.call("POST", &path, json!({})), world.call("POST", &path, json!({})));
    assert!([200, 201].contains(&one.status) && [200, 201].contains(&other.status), "{one:?} {other:?}");
    let view = world.service.describe(&id.parse().unwrap()).await.unwrap();
    assert_eq!(view.sandbox.generation, 2);
}

#[tokio::test]
async fn the_log_of_a_sandbox_has_its_events() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await;
    let log = world.get(&format!("/sandboxes/{id}/logs")).await.json();
    let messages: Vec<_> = log["logEntries"].as_array().unwrap().iter().map(|entry| &entry["message"]).collect();
    assert!(messages.iter().any(|message| message.as_str().unwrap().starts_with("suspended")), "{messages:?}");
    assert_eq!(log["logs"].as_array().unwrap().len(), messages.len());
    let page = world.get(&format!("/v2/sandboxes/{id}/logs?direction=backward&limit=1")).await.json();
    assert!(page["logs"][0]["message"].as_str().unwrap().starts_with("suspended"), "{page}");
    assert_eq!(world.get(&format!("/v2/sandboxes/{id}/logs?direction=up")).await.refusal().0, 400);
}
