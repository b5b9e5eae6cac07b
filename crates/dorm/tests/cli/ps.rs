//! `dorm sbx ps` and `dorm sbx kill`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn processes_are_listed_and_killed() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.json(&["sbx", "ps", "web", "-o", "json"]).await, json!([]));
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "echo", "hello"]).await.code, 0);
    assert_eq!(world.json(&["sbx", "ps", "web", "-o", "json"]).await, json!([]));
    let ended = world.json(&["sbx", "ps", "web", "--all", "-o", "json"]).await;
    assert_eq!((&ended[0]["argv"], &ended[0]["exit"]["exit_code"]), (&json!(["echo", "hello"]), &json!(0)));
    let handle = ended[0]["process"].to_string();
    let table = String::from_utf8(world.dorm(&["sbx", "ps", "web", "-a"]).await.stdout).unwrap();
    assert!(table.contains("COMMAND") && table.contains("exited with 0") && table.contains("echo hello"), "{table}");
    assert_eq!(world.json(&["sbx", "ps", "web", "-a", "--label", "none", "-o", "json"]).await, json!([]));
    assert_eq!(world.json(&["sbx", "kill", "web", &handle, "-o", "json"]).await, json!({"killed": 0}));
    world.dorm(&["sbx", "kill", "web", "77"]).await.failed(3, "there is no process 77");
    world.dorm(&["sbx", "kill", "web", "x"]).await.failed(2, "x");
    world.dorm(&["sbx", "ps", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}
