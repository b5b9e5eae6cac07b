//! `dorm sbx run`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_sandbox_ends_with_its_command() {
    let world = World::new().await;
    let ran = world.dorm(&["sbx", "run", "-e", "A=1", "--memory", "128M", "--", "sh", "-c", "echo $A; exit 4"]).await;
    assert_eq!((ran.code, ran.text().as_str(), ran.stderr.as_str()), (4, "1\n", ""));
    let all = world.json(&["sbx", "ls", "--all", "-o", "json"]).await;
    assert_eq!((all.as_array().unwrap().len(), &all[0]["state"]), (1, &json!("terminated")));
}

#[tokio::test]
async fn the_sandbox_ends_also_when_the_command_cannot_be_started() {
    let world = World::new().await;
    world.dorm(&["sbx", "run", "--", "no-such-command"]).await.failed(125, "no-such-command");
    assert_eq!(world.json(&["sbx", "ls", "-o", "json"]).await, json!([]));
    world.dorm(&["sbx", "run", "--image", "nothing", "--", "true"]).await.failed(125, "nothing");
}

#[tokio::test]
async fn input_goes_to_the_command() {
    let world = World::new().await;
    let ran = world.dorm_with(&["sbx", "run", "-i", "--", "cat"], b"through").await;
    assert_eq!((ran.code, ran.text().as_str()), (0, "through"));
}
