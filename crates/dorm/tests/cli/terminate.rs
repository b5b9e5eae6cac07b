//! `dorm sbx terminate`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn several_end_at_once_and_for_ever() {
    let world = World::new().await;
    let id = world.named("a").await;
    world.named("b").await;
    let rows = world.table(&["sbx", "terminate", "a", "b"]).await;
    let states: Vec<_> = rows[1..].iter().map(|row| row[2].as_str()).collect();
    assert_eq!(states, ["terminated (requested)", "terminated (requested)"]);
    let again = world.json(&["sbx", "terminate", &id, "-o", "json"]).await;
    assert_eq!(again[0]["state"], "terminated", "terminating twice is idempotent");
    assert_eq!(world.json(&["sbx", "ls", "-o", "json"]).await, json!([]));
}

#[tokio::test]
async fn one_that_is_not_there_does_not_keep_the_others() {
    let world = World::new().await;
    world.named("a").await;
    let ran = world.dorm(&["sbx", "terminate", "nobody", "a"]).await;
    ran.failed(3, "error: there is no sandbox 'nobody'");
    assert_eq!(ran.rows().len(), 2);
    assert_eq!(world.json(&["sbx", "ls", "-o", "json"]).await, json!([]));
}
