//! Forks of real sandboxes.

use std::collections::BTreeSet;

use serde_json::json;

use crate::place::{Counter, Place};

#[tokio::test]
async fn four_forks_continue_from_one_moment_each_as_somebody_else() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    counter.is_whole(daemon).await;
    let child = |number: u32| json!({ "name": format!("worker-{number}"), "env": { "NUMBER": number.to_string() } });
    let children: Vec<_> = (1..=4).map(child).collect();
    let asked = json!({ "children": children, "on_partial_failure": "roll_back" });
    let forked = daemon.post(&format!("/sandboxes/{}/fork", counter.id), asked).await.unwrap();
    let mut told = BTreeSet::new();
    for child in forked["children"].as_array().unwrap() {
        let id = child["sandbox"]["id"].as_str().unwrap();
        let mut of_child = counter.child(id);
        of_child.is_whole(daemon).await;
        of_child.is_whole(daemon).await;
        let identity = "hostname; echo number $NUMBER; python3 -c 'import uuid; print(uuid.uuid4())'";
        told.extend(daemon.exec(id, &["sh", "-c", identity]).await.unwrap().1.lines().map(str::to_owned));
    }
    assert_eq!(told.len(), 12, "every hostname, variable and random number is another: {told:?}");
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}
