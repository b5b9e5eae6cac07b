//! Lists of sandboxes.

use serde_json::json;

use crate::world::World;

/// The ids on every page of a list.
async fn walk(world: &World, query: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let next = if token.is_empty() { String::new() } else { format!("&nextToken={token}") };
        let answer = world.get(&format!("/v2/sandboxes?{query}{next}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let ids =
            answer.json().as_array().unwrap().iter().map(|one| one["sandboxID"].as_str().unwrap().to_owned()).collect();
        pages.push(ids);
        match answer.header("x-next-token") {
            Some(next) => token = next.to_owned(),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn pages_hold_each_sandbox_once_in_both_directions() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for at in 0..5 {
        let id = world.create(json!({})).await;
        if at % 2 == 0 {
            world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await;
        }
        ids.push(id);
    }
    let down = walk(&world, "limit=1&order=desc").await;
    let up = walk(&world, "limit=2&order=asc").await;
    assert_eq!(down.len(), 5);
    assert_eq!(up.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    let (mut down, up): (Vec<_>, Vec<_>) = (down.concat(), up.concat());
    down.sort();
    let mut all = ids.clone();
    all.sort();
    assert_eq!(down, all);
    assert_eq!(
        {
            let mut up = up;
            up.sort();
            up
        },
        all
    );
    assert_eq!(walk(&world, "state=paused").await.concat().len(), 3);
    assert_eq!(walk(&world, "state=running").await.concat().len(), 2);
    assert_eq!(walk(&world, "state=running%2Cpaused").await.concat().len(), 5);
    let running = world.get("/sandboxes").await.json();
    assert_eq!(running.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn metadata_template_and_start_select() {
    let world = World::new().await;
    let ann = world.create(json!({ "metadata": { "a b": "c&d", "x": "1" } })).await;
    world.create(json!({ "metadata": { "x": "1" } })).await;
    assert_eq!(walk(&world, "metadata=a%252520b%3Dc%252526d").await.concat(), [ann]);
    assert_eq!(walk(&world, "metadata=x%3D1").await.concat().len(), 2);
    assert_eq!(walk(&world, "metadata=x%3D2").await.concat().len(), 0);
    assert_eq!(walk(&world, "template=base").await.concat().len(), 2);
    assert_eq!(walk(&world, "template=other").await.concat().len(), 0);
    assert_eq!(walk(&world, "startedAfter=2020-01-01T00:00:00Z").await.concat().len(), 2);
    assert_eq!(walk(&world, "startedAfter=2120-01-01T00:00:00Z&order=asc").await.concat().len(), 0);
}

#[tokio::test]
async fn sandboxes_made_elsewhere_are_listed_and_usable() {
    let world = World::new().await;
    let spec = dorm_service::CreateSpec {
        name: Some("native".parse().unwrap()),
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        ..dorm_service::CreateSpec::new(dorm_service::CreateFrom::Image("base".to_owned()))
    };
    let id = world.service.create(spec).await.unwrap().sandbox.id.to_string();
    assert_eq!(walk(&world, "metadata=team%3Dblue").await.concat(), std::slice::from_ref(&id));
    assert_eq!(world.call("POST", &format!("/sandboxes/{id}/pause"), json!({})).await.status, 204);
    let connected = world.call("POST", &format!("/v2/sandboxes/{id}/connect"), json!({})).await;
    assert_eq!(connected.status, 201);
    assert!(connected.json()["envdAccessToken"].is_string());
}
