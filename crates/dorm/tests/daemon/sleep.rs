//! Suspending, resuming, snapshots, clones and timeouts of real sandboxes.

use serde_json::json;

use crate::place::{Counter, Place, becomes};

#[tokio::test]
async fn memory_survives_parked_and_evicted_sleep() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    assert_eq!(daemon.act(&id, "suspend").await.unwrap()["residence"], "parked");
    daemon.act(&id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
    daemon.act(&id, "suspend").await.unwrap();
    assert_eq!(daemon.act(&id, "evict").await.unwrap()["residence"], "evicted");
    let usage = daemon.get(&format!("/sandboxes/{id}/usage")).await.unwrap();
    assert_eq!(usage["processes"], 0);
    let awake = daemon.act(&id, "resume").await.unwrap();
    assert_eq!((&awake["id"], &awake["generation"]), (&json!(id), &json!(3)));
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn traffic_wakes_a_sandbox_and_is_answered_by_it() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    daemon.act(&counter.id, "suspend").await.unwrap();
    counter.is_whole(daemon).await;
    daemon.act(&counter.id, "suspend").await.unwrap();
    daemon.act(&counter.id, "evict").await.unwrap();
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_sandbox_without_a_network_sleeps_and_is_reached_too() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base", "egress": "none" })).await;
    daemon.act(&counter.id, "suspend").await.unwrap();
    daemon.act(&counter.id, "evict").await.unwrap();
    daemon.act(&counter.id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn children_of_a_snapshot_diverge_and_outlive_their_source() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    let snapshot = daemon.checkpoint(&id, "memory").await.unwrap()["id"].clone();
    counter.is_whole(daemon).await;
    let mut of_clone = counter.child("");
    let clone = daemon.post(&format!("/sandboxes/{id}/clone"), json!({ "name": "copy" })).await.unwrap();
    of_clone.id = clone["sandbox"]["id"].as_str().unwrap().to_owned();
    of_clone.is_whole(daemon).await;
    daemon.act(&id, "terminate").await.unwrap();
    let before = counter.visits() - 1;
    for name in ["left", "right"] {
        let child = daemon.create(json!({ "name": name, "snapshot": snapshot })).await.unwrap();
        let mut child = counter.child(&child);
        child.back_to(before);
        child.is_whole(daemon).await;
        child.is_whole(daemon).await;
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn a_passed_deadline_ends_the_ephemeral_and_suspends_the_named() {
    let place = Place::new();
    let daemon = place.daemon();
    let ephemeral = daemon.create(json!({ "image": "base", "timeout_secs": 1 })).await.unwrap();
    let named = daemon.create(json!({ "name": "web", "image": "base", "idle_timeout_secs": 1 })).await.unwrap();
    let over = becomes(daemon, &ephemeral, "terminated").await;
    assert!(over["cause"].to_string().contains("timeout"), "{over}");
    becomes(daemon, &named, "suspended").await;
    place.end(&[]).await;
}
