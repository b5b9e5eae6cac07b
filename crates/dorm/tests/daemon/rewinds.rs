//! Real sandboxes that are rewound to snapshots, restarted and promoted.

use dorm_testing::Daemon;
use serde_json::{Value, json};

use crate::place::{Counter, Place, becomes};

async fn note(daemon: &Daemon, id: &str, text: &str) {
    daemon.write(id, "/root/note", text.as_bytes().to_vec()).await.unwrap();
}

async fn noted(daemon: &Daemon, id: &str) -> String {
    daemon.exec(id, &["cat", "/root/note"]).await.unwrap().1
}

async fn rewind(daemon: &Daemon, id: &str, to: &Value) -> Value {
    daemon.post(&format!("/sandboxes/{id}/rewind"), json!({ "to": to })).await.unwrap()
}

/// Checks that a sandbox created from the snapshot has the counter after this many visits.
async fn holds(daemon: &Daemon, snapshot: &Value, counter: &Counter, visits: u64, text: &str) {
    let id = daemon.create(json!({ "snapshot": snapshot })).await.unwrap();
    let mut child = counter.child(&id);
    child.back_to(visits);
    child.is_whole(daemon).await;
    assert_eq!(noted(daemon, &id).await, text);
    daemon.act(&id, "terminate").await.unwrap();
}

#[tokio::test]
async fn a_counter_and_a_file_are_the_old_ones_and_the_future_can_be_resumed() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    note(daemon, &id, "old").await;
    let snapshot = daemon.checkpoint(&id, "memory").await.unwrap()["id"].clone();
    let then = counter.visits();
    counter.is_whole(daemon).await;
    counter.is_whole(daemon).await;
    note(daemon, &id, "new").await;
    let now = counter.visits();
    let back = rewind(daemon, &id, &snapshot).await;
    assert_eq!((&back["sandbox"]["id"], &back["sandbox"]["name"]), (&json!(id), &json!("web")));
    assert_eq!((&back["sandbox"]["state"], &back["sandbox"]["generation"]), (&json!("running"), &json!(2)));
    counter.back_to(then);
    counter.is_whole(daemon).await;
    assert_eq!(noted(daemon, &id).await, "old");
    holds(daemon, &back["future"], &counter, now, "new").await;
    // Several times in a row, also from suspended and evicted states.
    for verb in ["", "suspend", "evict"] {
        if verb == "evict" {
            daemon.act(&id, "suspend").await.unwrap();
        }
        if !verb.is_empty() {
            daemon.act(&id, verb).await.unwrap();
        }
        rewind(daemon, &id, &snapshot).await;
        counter.back_to(then);
        counter.is_whole(daemon).await;
    }
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
    daemon.act(&id, "terminate").await.unwrap();
    assert!(daemon.post(&format!("/sandboxes/{id}/rewind"), json!({ "to": snapshot })).await.is_err());
    let anew = daemon.post(&format!("/sandboxes/{id}/restart"), json!({})).await.unwrap();
    assert_eq!((&anew["snapshot"], &anew["sandbox"]["name"]), (&snapshot, &json!("web")));
    let mut child = counter.child(anew["sandbox"]["id"].as_str().unwrap());
    child.back_to(then);
    child.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_rewind_continues_after_its_daemon_has_died() {
    let mut place = Place::new();
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    let snapshot = place.daemon().checkpoint(&id, "memory").await.unwrap()["id"].clone();
    let then = counter.visits();
    counter.is_whole(place.daemon()).await;
    rewind(place.daemon(), &id, &snapshot).await;
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    becomes(place.daemon(), &id, "running").await;
    counter.back_to(then);
    counter.is_whole(place.daemon()).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_fork_takes_the_place_of_its_parent_and_an_ephemeral_one_is_rewound() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "image": "base" })).await;
    let id = counter.id.clone();
    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), json!({ "count": 1 })).await.unwrap();
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    let mut of_child = counter.child(&child);
    for _ in 0..3 {
        of_child.is_whole(daemon).await;
    }
    counter.is_whole(daemon).await;
    let done = daemon.post(&format!("/sandboxes/{child}/promote"), json!({})).await.unwrap();
    assert_eq!((&done["sandbox"]["id"], &done["sandbox"]["state"]), (&json!(id), &json!("running")));
    assert_eq!(daemon.describe(&child).await.unwrap()["state"], "terminated");
    let before = counter.visits();
    counter.back_to(of_child.visits());
    counter.is_whole(daemon).await;
    rewind(daemon, &id, &done["future"]).await;
    counter.back_to(before);
    counter.is_whole(daemon).await;
    assert!(daemon.act(&id, "suspend").await.is_err(), "it is as ephemeral as it was");
    place.end(&[]).await;
}
