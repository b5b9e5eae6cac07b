use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn events_are_read_in_pages() {
    let world = World::new().await;
    let id = world.named("a").await;
    let other = world.named("b").await;
    world.post("/v1/sandboxes/a/suspend", Value::Null).await;
    let all = world.get("/v1/events").await;
    let all = all["events"].as_array().unwrap();
    let kinds = |of: &str| -> Vec<&str> {
        all.iter().filter(|event| event["sandbox"] == of).map(|event| event["kind"].as_str().unwrap()).collect()
    };
    assert_eq!(kinds(&id), ["created", "started", "suspending", "suspended"]);
    assert_eq!(kinds(&other), ["created", "started"]);
    assert!(all.iter().all(|event| event["initiator"] == "user" && event["at"].as_str().unwrap().ends_with('Z')));
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page = world.get(&format!("/v1/events?sandbox=a&limit=1&after={after}")).await;
        let events = page["events"].as_array().unwrap().clone();
        if events.is_empty() {
            assert_eq!(page["next"], after);
            break;
        }
        after = page["next"].as_u64().unwrap();
        paged.extend(events);
    }
    let of_a: Vec<Value> = all.iter().filter(|event| event["sandbox"] == json!(id)).cloned().collect();
    assert_eq!(paged, of_a);
}

#[tokio::test]
async fn events_are_followed_and_continue_after_the_last_one_seen() {
    let world = World::new().await;
    world.named("a").await;
    let mut follower = world.events("/v1/events").await;
    let mut seen = Vec::new();
    while seen.last() != Some(&json!("started")) {
        let event = follower.next().await.unwrap();
        assert_eq!(event.id.as_deref(), Some(event.data["number"].to_string().as_str()));
        seen.push(event.data["kind"].clone());
    }
    world.post("/v1/sandboxes/a/suspend", Value::Null).await;
    let mut last = None;
    while seen.last() != Some(&json!("suspending")) {
        let event = follower.next().await.unwrap();
        seen.push(event.data["kind"].clone());
        last = event.id;
    }
    drop(follower);
    world.post("/v1/sandboxes/a/resume", Value::Null).await;
    let request = world.request("GET", "/v1/events?after=0").header("last-event-id", last.unwrap());
    let mut follower = world.events_of(request).await;
    while seen.last() != Some(&json!("resumed")) {
        seen.push(follower.next().await.unwrap().data["kind"].clone());
    }
    assert_eq!(seen, ["created", "started", "suspending", "suspended", "resuming", "resumed"]);
    let bad = world.request("GET", "/v1/events").header("accept", "text/event-stream").header("last-event-id", "x");
    assert_eq!(bad.send().await.unwrap().status(), 400);
    world.end().await;
}
