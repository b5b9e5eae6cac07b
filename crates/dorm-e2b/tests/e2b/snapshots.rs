//! Snapshots and forks.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn a_snapshot_is_a_source_with_or_without_a_name() {
    let world = World::new().await;
    let id = world.create(json!({ "metadata": { "a": "b" } })).await;
    let take = |body: Value| world.call("POST", "/sandboxes/ID/snapshots", body);
    assert_eq!(take(json!({})).await.status, 404);
    let path = format!("/sandboxes/{id}/snapshots");
    let plain = world.call("POST", &path, json!({})).await;
    assert_eq!((plain.status, &plain.json()["names"]), (201, &json!([])));
    let plain = plain.json()["snapshotID"].as_str().unwrap().to_owned();
    assert!(plain.ends_with(":default"), "{plain}");
    let named = world.call("POST", &path, json!({ "name": "checked" })).await.json();
    assert_eq!(named, json!({ "snapshotID": "checked:default", "names": ["checked:default"] }));
    for source in [&plain, "checked", "checked:default"] {
        let created = world.call("POST", "/v2/sandboxes", json!({ "templateID": source })).await;
        assert_eq!(created.status, 201, "{source}: {created:?}");
    }
    assert_eq!(world.call("POST", "/v2/sandboxes", json!({ "templateID": "checked:v9" })).await.refusal().0, 404);
    assert_eq!(world.describe(&id).await["state"], "running");
}

#[tokio::test]
async fn a_name_used_again_stands_for_the_newest_snapshot() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    let path = format!("/sandboxes/{id}/snapshots");
    for _ in 0..2 {
        assert_eq!(world.call("POST", &path, json!({ "name": "again" })).await.status, 201);
    }
    let listed = world.get("/snapshots").await.json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["names"], json!(["again:default"]));
    assert_eq!(listed[1]["names"], json!([]));
    assert_eq!(world.get("/snapshots?name=again").await.json().as_array().unwrap().len(), 1);
    let first = world.get("/snapshots?limit=1").await;
    let next = first.header("x-next-token").unwrap().to_owned();
    let second = world.get(&format!("/snapshots?limit=1&nextToken={next}")).await;
    assert_ne!(first.json(), second.json());
    assert_eq!(second.header("x-next-token"), None);
    assert_eq!(world.get(&format!("/snapshots?sandboxID={id}")).await.json().as_array().unwrap().len(), 2);
    assert_eq!(world.get("/snapshots?sandboxID=unknown").await.json(), json!([]));
    assert_eq!(world.get("/snapshots?limit=0").await.refusal().0, 400);
}

#[tokio::test]
async fn a_fork_has_copies_with_tokens_of_their_own() {
    let world = World::new().await;
    let id = world.create(json!({ "metadata": { "a": "b" } })).await;
    let source = world.describe(&id).await;
    let forked = world.call("POST", &format!("/sandboxes/{id}/fork"), json!({ "count": 3, "timeout": 60 })).await;
    assert_eq!(forked.status, 201);
    let forked = forked.json();
    let copies = forked.as_array().unwrap();
    assert_eq!(copies.len(), 3);
    for copy in copies {
        let copy = &copy["sandbox"];
        assert_ne!(copy["envdAccessToken"], source["envdAccessToken"]);
        let detail = world.describe(copy["sandboxID"].as_str().unwrap()).await;
        assert_eq!((&detail["metadata"], &detail["templateID"]), (&source["metadata"], &source["templateID"]));
        assert_eq!(crate::world::seconds(&detail["startedAt"], &detail["endAt"]), 60.0);
    }
    for count in [0, -1, 21] {
        let path = format!("/sandboxes/{id}/fork");
        assert_eq!(world.call("POST", &path, json!({ "count": count })).await.refusal().0, 400, "{count}");
    }
}
