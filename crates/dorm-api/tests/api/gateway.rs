use dorm_engine_fake::{Fault, Moment, Operation, SERVED};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, eventually, read};

/// A request without any key, as a browser sends it.
async fn visit(world: &World, host: &str) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{}/v1/info", world.address)).header("host", host).timeout(PATIENCE);
    read(request.send().await.unwrap()).await
}

async fn serving(world: &World, body: Value) -> String {
    let id = world.create(body).await;
    world.start(&id, json!({"argv": ["serve", "8080"]})).await;
    eventually("it listens", async || visit(world, &format!("8080-{id}.localhost")).await.0 == 200).await;
    id
}

#[tokio::test]
async fn a_port_is_reached_by_host_name_and_by_headers() {
    let world = World::new().await;
    let id = serving(&world, json!({"image": "base"})).await;
    let served = (200, Value::String(SERVED.to_owned()));
    assert_eq!(visit(&world, &format!("8080-{id}.localhost:7070")).await, served);
    assert_eq!(visit(&world, &format!("8080-{id}.example.org")).await.0, 421);
    let by_headers =
        world.request("GET", "/v1/info").header("x-dormouse-sandbox", &id).header("x-dormouse-port", "8080");
    assert_eq!(read(by_headers.send().await.unwrap()).await, served);
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_in_json() {
    let world = World::new().await;
    let id = serving(&world, json!({"image": "base"})).await;
    let over = world.sandbox().await;
    world.post(&format!("/v1/sandboxes/{over}/terminate"), Value::Null).await;
    world.start(&id, json!({"argv": ["mirror", "9090"]})).await;
    let closed = format!("8081-{id}.localhost");
    let mirror = format!("9090-{id}.localhost");
    eventually("it listens", async || visit(&world, &mirror).await.1["code"] != "port_closed").await;
    for (host, status, code) in [
        ("8080-abcdefghij2345678901.localhost".to_owned(), 404, "not_found"),
        (closed, 502, "port_closed"),
        (mirror, 502, "no_answer"),
        (format!("8080-{over}.localhost"), 410, "gone"),
    ] {
        let (found, answer) = visit(&world, &host).await;
        assert_eq!((found, &answer["code"]), (status, &json!(code)), "{host}: {answer}");
    }
    for (sandbox, port, status) in
        [(id.as_str(), "0", 400), (id.as_str(), "", 400), ("web", "80", 404), ("", "80", 404)]
    {
        let request = world.request("GET", "/").header("x-dormouse-sandbox", sandbox).header("x-dormouse-port", port);
        assert_eq!(request.send().await.unwrap().status(), status, "{sandbox} {port}");
    }
}

#[tokio::test]
async fn traffic_wakes_a_sandbox_once_for_all_who_come() {
    let world = World::new().await;
    let id = serving(&world, json!({"image": "base", "name": "web"})).await;
    let host = format!("8080-{id}.localhost");
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    assert_eq!(visit(&world, &host).await.0, 200);
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    world.post("/v1/sandboxes/web/evict", Value::Null).await;
    let visits = futures_util::future::join_all((0..8).map(|_| visit(&world, &host))).await;
    assert!(visits.iter().all(|(status, _)| *status == 200), "{visits:?}");
    assert_eq!(world.get("/v1/sandboxes/web").await["generation"], 3);
    let events = world.get("/v1/events?sandbox=web").await;
    let by_traffic = events["events"].as_array().unwrap().iter().filter(|event| event["initiator"] == "traffic");
    let kinds: Vec<&str> = by_traffic.map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["resuming", "resumed", "resuming", "resumed"]);
}

#[tokio::test]
async fn traffic_to_a_sandbox_that_may_not_or_cannot_wake_is_refused() {
    let world = World::new().await;
    let id = serving(&world, json!({"image": "base", "name": "fast", "wake": "never"})).await;
    world.post("/v1/sandboxes/fast/suspend", Value::Null).await;
    let (status, answer) = visit(&world, &format!("8080-{id}.localhost")).await;
    assert_eq!((status, &answer["code"]), (409, &json!("conflict")), "{answer}");
    assert_eq!(world.get("/v1/sandboxes/fast").await["state"], "suspended");

    let id = serving(&world, json!({"image": "base", "name": "ill"})).await;
    world.post("/v1/sandboxes/ill/suspend", Value::Null).await;
    world.post("/v1/sandboxes/ill/evict", Value::Null).await;
    world.host.faults().always(Operation::Restore, Moment::Before, Fault::Fail);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{}/", world.address)).header("host", format!("8080-{id}.localhost"));
    let response = request.timeout(PATIENCE).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, answer) = read(response).await;
    assert_eq!((status, &answer["code"]), (503, &json!("failed")), "{answer}");
    world.host.faults().clear();
    assert_eq!(visit(&world, &format!("8080-{id}.localhost")).await.0, 200);
}

#[tokio::test]
async fn traffic_that_comes_while_a_sandbox_falls_asleep_wakes_it() {
    let world = World::new().await;
    let id = serving(&world, json!({"image": "base", "name": "tired"})).await;
    let host = format!("8080-{id}.localhost");
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let release = async {
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        eventually("it is being suspended", async || world.get("/v1/sandboxes/tired").await["state"] == "suspending")
            .await;
        let visit = visit(&world, &host);
        let release = async {
            tokio::task::yield_now().await;
            world.host.faults().release();
        };
        futures_util::future::join(visit, release).await.0
    };
    let suspend = world.call("POST", "/v1/sandboxes/tired/suspend", Value::Null);
    let ((status, _), (visited, answer)) = futures_util::future::join(suspend, release).await;
    assert_eq!((status, visited), (200, 200), "{answer}");
}
