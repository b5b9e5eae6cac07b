use std::time::Duration;

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
            assert_eq!(answer["error"]["code"], "unauthorized");
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
    // The sandbox goes on.
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
