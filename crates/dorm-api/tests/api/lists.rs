use dorm_lifecycle::Timestamp;
use dorm_store::{Prune, Store as _};
use serde_json::{Value, json};

use crate::world::{World, read};

/// Reads a list page by page; returns the value of `key` of each item.
async fn pages(world: &World, path: &str, list: &str, key: &str) -> Vec<String> {
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("{path}limit=2{after}")).await;
        let things = page[list].as_array().unwrap();
        assert!((1..=2).contains(&things.len()), "{page}");
        seen.extend(things.iter().map(|thing| thing[key].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return seen,
        }
    }
}

#[tokio::test]
async fn snapshots_come_in_pages_and_of_one_sandbox() {
    let world = World::new().await;
    let (web, other) = (world.named("web").await, world.named("other").await);
    let mut taken = Vec::new();
    for (id, count) in [(&web, 3), (&other, 2)] {
        for _ in 0..count {
            let asked = json!({ "kind": "memory" });
            let snapshot = world.post(&format!("/v1/sandboxes/{id}/checkpoint"), asked).await;
            taken.push(snapshot["id"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(pages(&world, "/v1/snapshots?", "snapshots", "id").await, taken);
    let path = format!("/v1/snapshots?source={web}&");
    assert_eq!(pages(&world, &path, "snapshots", "id").await, taken[..3]);
    let all = world.get("/v1/snapshots").await;
    assert_eq!((all["snapshots"].as_array().unwrap().len(), &all["next"]), (5, &Value::Null));
    for wrong in ["limit=0", "limit=1001", "after=x", "after=1-x", "source=X", "sort=x"] {
        let (status, answer) = world.call("GET", &format!("/v1/snapshots?{wrong}"), Value::Null).await;
        assert_eq!((status, &answer["code"]), (400, &json!("invalid_argument")), "{wrong}");
    }
}

#[tokio::test]
async fn volumes_come_in_pages() {
    let world = World::new().await;
    for name in ["e", "b", "d", "a", "c"] {
        world.post("/v1/volumes", json!({ "name": name })).await;
    }
    assert_eq!(pages(&world, "/v1/volumes?", "volumes", "name").await, ["a", "b", "c", "d", "e"]);
    let (status, _) = world.call("GET", "/v1/volumes?limit=0", Value::Null).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn keys_webhooks_and_images_come_in_pages() {
    let world = World::new().await;
    for count in 0..5 {
        world.post("/v1/keys", json!({ "name": format!("key-{count}") })).await;
        world.post("/v1/webhooks", json!({ "url": "http://127.0.0.1:9/hook" })).await;
        let source = world.directory.path().join(format!("image-{count}"));
        std::fs::create_dir_all(source.join("etc")).unwrap();
        std::fs::write(source.join("etc/number"), count.to_string()).unwrap();
        let imported = world.owners("POST", "/v1/images/import").json(&json!({ "path": source }));
        assert_eq!(read(imported.send().await.unwrap()).await.0, 201);
    }
    for (list, key, count) in [("keys", "id", 5), ("webhooks", "id", 5), ("images", "digest", 6)] {
        let whole = world.get(&format!("/v1/{list}")).await;
        let all: Vec<_> = whole[list].as_array().unwrap().iter().filter_map(|one| one[key].as_str()).collect();
        assert_eq!((all.len(), &whole["next"]), (count, &Value::Null), "{list}");
        assert_eq!(pages(&world, &format!("/v1/{list}?"), list, key).await, all, "{list}");
        for wrong in ["limit=0", "limit=1001", "after=-", "sort=x"] {
            let (status, answer) = world.call("GET", &format!("/v1/{list}?{wrong}"), Value::Null).await;
            assert_eq!((status, &answer["code"]), (400, &json!("invalid_argument")), "{list} {wrong}");
        }
    }
}

#[tokio::test]
async fn the_newest_events_are_read_alone() {
    let world = World::new().await;
    world.named("a").await;
    world.named("b").await;
    let page = world.get("/v1/events?newest=2").await;
    let kinds: Vec<_> = page["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str()).collect();
    assert_eq!((kinds, &page["oldest"]), (vec![Some("created"), Some("started")], &json!(1)));
}

#[tokio::test]
async fn a_cursor_after_which_events_were_removed_is_refused() {
    let world = World::new().await;
    world.named("a").await;
    world.named("b").await;
    let all = Prune { events_before: Some(Timestamp::from_millis(u64::MAX)), batch: 100, ..Prune::default() };
    world.store.prune(&Prune { events_through: 3, ..all }).await.unwrap();
    for path in ["/v1/events?after=1", "/v1/events?after=2"] {
        let (status, answer) = world.call("GET", path, Value::Null).await;
        assert_eq!((status, &answer["code"]), (410, &json!("gone")), "{path}: {answer}");
        let followed = world.request("GET", path).header("accept", "text/event-stream").send().await.unwrap();
        assert_eq!(followed.status(), 410, "{path}");
    }
    for path in ["/v1/events", "/v1/events?after=0", "/v1/events?after=3"] {
        let page = world.get(path).await;
        assert_eq!((&page["oldest"], &page["next"]), (&json!(4), &json!(4)), "{path}");
        assert_eq!(page["events"].as_array().unwrap().len(), 1, "{path}");
    }
    world.store.prune(&Prune { events_through: 9, ..all }).await.unwrap();
    let page = world.get("/v1/events?after=4").await;
    assert_eq!((&page["oldest"], &page["next"], &page["events"]), (&json!(5), &json!(4), &json!([])));
}

#[tokio::test]
async fn sandboxes_are_listed_by_time_and_a_cursor_belongs_to_its_list() {
    let world = World::new().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(world.ok("POST", "/v1/sandboxes", json!({"image": "base"})).await["id"].clone());
    }
    let page = world.ok("GET", "/v1/sandboxes?sort=created&order=asc&limit=2", json!(null)).await;
    let next = page["next"].as_str().unwrap().to_owned();
    made.push(world.ok("POST", "/v1/sandboxes", json!({"image": "base"})).await["id"].clone());
    let rest = format!("/v1/sandboxes?sort=created&order=asc&limit=2&after={next}");
    let rest = world.ok("GET", &rest, json!(null)).await;
    let pages = [&page, &rest].map(|page| page["sandboxes"].as_array().unwrap().clone()).concat();
    let mut listed: Vec<_> = pages.iter().map(|sandbox| sandbox["id"].clone()).collect();
    let time =
        |sandbox: &serde_json::Value| sandbox["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let mut times: Vec<_> = pages.iter().map(time).collect();
    assert!(times.is_sorted(), "{times:?}");
    times.dedup();
    listed.sort_by_key(|id| id.to_string());
    made.sort_by_key(|id| id.to_string());
    assert_eq!(listed, made, "each once");
    for wrong in [
        format!("sort=created&order=desc&after={next}"),
        format!("sort=started&after={next}"),
        format!("sort=created&state=running&after={next}"),
        format!("after={next}"),
        format!("sort=created&after={}", made[0].as_str().unwrap()),
        "sort=name".to_owned(),
        "sort=created&order=up".to_owned(),
        "order=desc".to_owned(),
    ] {
        let (status, answer) = world.call("GET", &format!("/v1/sandboxes?{wrong}"), json!(null)).await;
        assert!(status == 422 || status == 400, "{wrong}: {status} {answer}");
    }
}
