//! `dorm sbx rewind`, `restart` and `promote`.

use serde_json::json;

use crate::world::World;

async fn written(world: &World, name: &str, text: &str) {
    let script = format!("echo {text} > /tmp/note");
    assert_eq!(world.dorm(&["sbx", "exec", name, "--", "sh", "-c", &script]).await.code, 0);
}

async fn reads(world: &World, name: &str, text: &str) {
    assert_eq!(world.dorm(&["sbx", "exec", name, "--", "cat", "/tmp/note"]).await.text(), format!("{text}\n"));
}

#[tokio::test]
async fn a_sandbox_is_rewound_and_says_what_has_become_of_the_present() {
    let world = World::new().await;
    let id = world.named("web").await;
    written(&world, "web", "old").await;
    let snapshot = world.json(&["sbx", "checkpoint", "web", "--checkpoint-type", "memory", "-o", "json"]).await;
    let snapshot = snapshot["id"].as_str().unwrap();
    written(&world, "web", "new").await;
    let done = world.json(&["sbx", "rewind", "web", "--to", snapshot, "--keep", "forever", "-o", "json"]).await;
    assert_eq!((&done["sandbox"]["id"], &done["sandbox"]["rewound_to"]), (&json!(id), &json!(snapshot)));
    reads(&world, "web", "old").await;
    let ran = world.dorm(&["sbx", "rewind", "web", "--to", done["future"].as_str().unwrap(), "--keep", "none"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    reads(&world, "web", "new").await;
    world.dorm(&["sbx", "rewind", "web", "--to", "abcdefghij2345678901"]).await.failed(3, "abcdefghij2345678901");
    world.dorm(&["sbx", "rewind", "web", "--to", snapshot, "--keep", "soon"]).await.failed(2, "'forever' or 'none'");
    world.dorm(&["sbx", "restart", "web"]).await.failed(4, "not terminated");
    world.dorm(&["sbx", "promote", "web"]).await.failed(4, "was not made from another sandbox");
    assert_eq!(world.dorm(&["sbx", "terminate", "web"]).await.code, 0);
    let made = world.json(&["sbx", "restart", &id, "-o", "json"]).await;
    assert_eq!((&made["sandbox"]["name"], made["sandbox"]["id"] == json!(id)), (&json!("web"), false));
}

#[tokio::test]
async fn a_child_is_promoted() {
    let world = World::new().await;
    let id = world.named("web").await;
    written(&world, "web", "parent").await;
    assert_eq!(world.dorm(&["sbx", "clone", "web", "--name", "try"]).await.code, 0);
    written(&world, "try", "child").await;
    let done = world.json(&["sbx", "promote", "try", "-o", "json"]).await;
    assert_eq!((&done["sandbox"]["id"], &done["sandbox"]["name"]), (&json!(id), &json!("web")));
    reads(&world, "web", "child").await;
    world.dorm(&["sbx", "promote", "try"]).await.failed(3, "try");
}
