use std::time::Duration;

use dorm_http::ConnectionLimits;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{KEY, PATIENCE, World, read};

#[tokio::test]
async fn only_a_key_opens_and_health_needs_none() {
    let world = World::new().await;
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |path: &str, header: Option<(&str, String)>| {
        let mut request = stranger.get(format!("http://{}{path}", world.address)).timeout(PATIENCE);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.send().await.unwrap()
    };
    for (path, header, status) in [
        ("/v1/health", None, 200),
        ("/v1/info", None, 401),
        ("/v1/openapi.json", None, 401),
        ("/v1/nothing", None, 401),
        ("/v1/info", Some(("x-api-key", "wrong".to_owned())), 401),
        ("/v1/info", Some(("authorization", "Bearer wrong".to_owned())), 401),
        ("/v1/info", Some(("authorization", format!("Basic {KEY}"))), 401),
        ("/v1/info", Some(("authorization", format!("Bearer {KEY}"))), 200),
        ("/v1/info", Some(("x-api-key", KEY.to_owned())), 200),
    ] {
        let response = ask(path, header.clone()).await;
        let challenge = response.headers().contains_key("www-authenticate");
        let (found, answer) = read(response).await;
        assert_eq!((found, challenge), (status, status == 401), "{path} {header:?}: {answer}");
        if status == 401 {
            assert_eq!(answer["code"], "unauthorized");
        }
    }
    let info = world.get("/v1/info").await;
    assert_eq!((&info["engine"]["name"], &info["project"]), (&json!("fake"), &json!("local")));
    assert_eq!(world.get("/v1/health").await, json!({"status": "ok"}));
    assert_eq!(world.get("/v1/openapi.json").await["info"]["title"], "Dormouse");
}

#[tokio::test]
async fn a_stop_lets_requests_end_and_ends_quiet_connections_at_once() {
    let world = World::with_grace(PATIENCE).await;
    let id = world.sandbox().await;
    let events = world.events("/v1/events?after=1000").await;
    let mut idle = TcpStream::connect(world.address).await.unwrap();
    idle.write_all(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut byte = [0];
    idle.read_exact(&mut byte).await.unwrap();
    let started = world.request("POST", &format!("/v1/sandboxes/{id}/exec")).header("accept", "text/event-stream");
    let mut running = world.events_of(started.json(&json!({"shell": "sleep 1; echo done"}))).await;
    assert_eq!(running.next().await.unwrap().kind, "started");
    world.stop.cancel();
    let kinds: Vec<String> = running.rest().await.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["stdout", "exit"]);
    assert!(events.rest().await.is_empty());
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, idle.read_to_end(&mut rest)).await.unwrap().unwrap();
    world.end().await;
}

#[tokio::test]
async fn what_does_not_end_is_cut_after_a_stop() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let request = world.request("POST", &format!("/v1/sandboxes/{id}/exec")).json(&json!({"argv": ["sleep", "3600"]}));
    let mut running = world.events_of(request).await;
    assert_eq!(running.next().await.unwrap().kind, "started");
    let service = world.service.clone();
    world.end().await;
    assert!(running.rest().await.is_empty());
    // The sandbox continues to run.
    let id = service.find(&id).await.unwrap();
    let (agent, _in_use) = service.agent(&id, dorm_service::Use::Exec).await.unwrap();
    assert!(agent.processes().await.unwrap()[0].exit.is_none());
}

#[tokio::test]
async fn answers_leave_at_once_on_a_connection_that_is_kept() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    for _ in 0..20 {
        let request = format!("GET /v1/info HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read_buf(&mut answer)).await;
            assert!(read.unwrap().unwrap() > 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(world.call("GET", "/v1/images", Value::Null).await.0, 200);
}

#[tokio::test]
async fn the_owner_needs_no_key_and_is_asked_everything_that_a_key_opens() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let (status, info) = read(world.owners("GET", "/v1/info").send().await.unwrap()).await;
    assert_eq!((status, &info["engine"]["name"]), (200, &json!("fake")), "{info}");
    let (status, found) = read(world.owners("GET", &format!("/v1/sandboxes/{id}")).send().await.unwrap()).await;
    assert_eq!((status, &found["id"]), (200, &json!(id)), "{found}");
    world.end().await;
}

#[tokio::test]
async fn idle_connections_without_a_key_make_room_for_those_that_show_one() {
    let limits = ConnectionLimits {
        total: 64,
        visitors: 32,
        unknown: 16,
        unknown_at_once: 48,
        unknown_for: PATIENCE,
        new_for: Duration::ZERO,
    };
    let world = World::with_limits(limits).await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(world.address).await.unwrap());
    }
    assert_eq!(world.get("/v1/images").await["images"].as_array().unwrap().len(), 1);
    // The oldest of them were closed; the newest are still open.
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, idle[0].read_to_end(&mut rest)).await.unwrap().unwrap();
    let newest = idle.last_mut().unwrap();
    newest.write_all(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    tokio::time::timeout(PATIENCE, newest.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_with_a_reason_and_the_owner_is_not_among_them() {
    let limits = ConnectionLimits {
        total: 4,
        visitors: 2,
        unknown: 4,
        unknown_at_once: 4,
        unknown_for: PATIENCE,
        new_for: Duration::ZERO,
    };
    let world = World::with_limits(limits).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let request = format!("GET /v1/info HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        held.push(stream);
    }
    let mut refused = TcpStream::connect(world.address).await.unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, refused.read_to_end(&mut said)).await.unwrap().unwrap();
    assert!(said.starts_with(b"HTTP/1.1 503"), "{}", String::from_utf8_lossy(&said));
    assert_eq!(read(world.owners("GET", "/v1/info").send().await.unwrap()).await.0, 200);
    held.pop();
    let client = &world;
    crate::world::eventually("there is room again", || async move {
        client.request("GET", "/v1/info").send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
}

#[tokio::test]
async fn heads_are_limited_in_number_and_length() {
    let world = World::new().await;
    for head in ["x-a: b\r\n".repeat(200), format!("x-a: {}\r\n", "b".repeat(300_000))] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let request = format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\n{head}\r\n");
        // The server may refuse the request before all of it is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut said = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap();
        assert!(!said.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&said));
    }
    assert_eq!(world.get("/v1/health").await, json!({"status": "ok"}));
}
