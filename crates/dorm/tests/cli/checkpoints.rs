//! `dorm sbx checkpoints`, and `--checkpoint` of `exec`.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn what_is_taken_by_itself_can_be_chosen_shown_changed_and_ended() {
    let world = World::new().await;
    let create = ["sbx", "create", "web", "--checkpoint-every", "10m", "-o", "json"];
    let made = world.json(&create).await;
    let default = json!({"every_secs": 600.0, "kind": "filesystem", "keep": "3,24x1h,7x1d"});
    assert_eq!(made["checkpoints"], default);
    let shown = world.dorm(&["sbx", "checkpoints", "web"]).await;
    assert_eq!((shown.code, shown.text().as_str()), (0, "every  10m\ntype   filesystem\nkeep   3,24x1h,7x1d\n"));
    let change = ["sbx", "checkpoints", "web", "--keep", "24x60m, 5", "--checkpoint-type", "memory", "-o", "json"];
    let changed = world.json(&change).await;
    assert_eq!(changed["checkpoints"], json!({"every_secs": 600.0, "kind": "memory", "keep": "5,24x1h"}));
    let described = world.dorm(&["sbx", "describe", "web"]).await.text();
    assert!(described.contains("memory every 10m, keep 5,24x1h"), "{described}");
    let off = world.json(&["sbx", "checkpoints", "web", "--off", "-o", "json"]).await;
    assert_eq!(off["checkpoints"], Value::Null);
    let create = ["--checkpoint-every", "1h", "--checkpoint-keep", "2", "--checkpoint-type", "memory"];
    let made = world.json(&[&["sbx", "create", "other", "-o", "json"], &create[..]].concat()).await;
    assert_eq!(made["checkpoints"], json!({"every_secs": 3600.0, "kind": "memory", "keep": "2"}));
}

#[tokio::test]
async fn what_cannot_be_taken_by_itself_is_refused() {
    let world = World::new().await;
    world.named("web").await;
    world.dorm(&["sbx", "checkpoints", "web", "--keep", "3"]).await.failed(2, "every_secs of checkpoints is missing");
    world.dorm(&["sbx", "checkpoints", "web", "--every", "5s"]).await.failed(2, "it must be between 10 and 31536000");
    world.dorm(&["sbx", "checkpoints", "web", "--every", "soon"]).await.failed(2, "'soon' is not a time");
    world.dorm(&["sbx", "checkpoints", "web", "--keep", "3,x"]).await.failed(2, "'x' is neither a count");
    world.dorm(&["sbx", "checkpoints", "web", "--off", "--every", "1m"]).await.failed(2, "cannot be used with");
    world.dorm(&["sbx", "checkpoints", "nobody"]).await.failed(3, "nobody");
    world.dorm(&["sbx", "create", "b", "--checkpoint-keep", "3"]).await.failed(2, "--checkpoint-every");
}

#[tokio::test]
async fn a_command_can_have_a_snapshot_taken_first() {
    let world = World::new().await;
    world.named("web").await;
    let snapshots = async || {
        let all = world.json(&["sbx", "checkpoint", "ls", "-o", "json"]).await;
        all.as_array().unwrap().clone()
    };
    let ran = world.dorm(&["sbx", "exec", "--checkpoint", "web", "--", "sh", "-c", "echo out; exit 7"]).await;
    assert_eq!((ran.code, ran.text().as_str()), (7, "out\n"));
    let first = snapshots().await.remove(0);
    assert_eq!((&first["kind"], &first["made_by"]), (&json!("filesystem"), &json!("policy")));
    let id = first["id"].as_str().unwrap();
    assert_eq!(ran.stderr, format!("took snapshot {id} before the command\n"));
    let described = world.dorm(&["sbx", "checkpoint", "describe", id]).await.text();
    assert!(described.contains("made by         policy\n"), "{described}");
    let ran = world.json(&["sbx", "exec", "--checkpoint=memory", "web", "-o", "json", "--", "true"]).await;
    let second = snapshots().await.remove(1);
    assert_eq!((&ran["exit_code"], &ran["checkpoint"], &second["kind"]), (&json!(0), &second["id"], &json!("memory")));
    world.dorm(&["sbx", "exec", "--checkpoint", "-i", "web", "--", "cat"]).await.failed(2, "cannot be used with");
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let asleep = world.dorm(&["sbx", "exec", "--checkpoint", "web", "--", "true"]).await;
    assert_ne!(asleep.code, 0);
    assert_eq!(snapshots().await.len(), 2);
}
