//! Suspending, resuming, snapshots, clones and timeouts of real sandboxes.

use std::os::unix::fs::MetadataExt as _;

use dorm_testing::until;
use serde_json::json;

use crate::place::{Counter, PATIENCE, Place, becomes};

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
async fn each_suspend_after_a_wake_writes_only_what_changed() {
    let place = Place::new();
    let daemon = place.daemon();
    let engine = daemon.get("/info").await.unwrap()["engine"].clone();
    if engine["maps_memory"] == false || engine["shares_blocks"] == true {
        return place.end(&[]).await;
    }
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    // An image is complete if less than half of it would be left out.
    let hold = "import os, signal; held = os.urandom(64 << 20); open('/root/held', 'w'); signal.pause()";
    let argv = json!({ "argv": ["python3", "-c", hold] });
    daemon.post(&format!("/sandboxes/{id}/processes"), argv).await.unwrap();
    let is_held = async || Ok(daemon.exec(&id, &["test", "-e", "/root/held"]).await?.0 == 0);
    until(PATIENCE, "a file of the guest", is_held).await.unwrap();
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    let mut pages = Vec::new();
    // It is resumed from the disk once, and then in memory.
    for _ in 0..3 {
        daemon.act(&id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        assert_eq!(daemon.act(&id, "suspend").await.unwrap()["residence"], "parked");
        let states = std::fs::read_dir(daemon.data().join("saved_states")).unwrap();
        let bases = states.map(|state| state.unwrap().path().join("pages_base.img"));
        pages.extend(bases.filter_map(|path| std::fs::metadata(path).ok()).map(|facts| facts.ino()));
    }
    assert_eq!(pages.len(), 3, "each image has a base");
    assert_eq!(pages, [pages[0]; 3], "the pages that it woke from");
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
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
