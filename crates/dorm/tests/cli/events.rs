//! `dorm events`.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::world::{PATIENCE, World};

#[tokio::test]
async fn what_happened_is_told_in_its_order() {
    let world = World::new().await;
    let id = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let rows = world.table(&["events"]).await;
    assert_eq!(rows[0], ["NUMBER", "AT", "SANDBOX", "EVENT", "GENERATION", "BY", "DETAIL"]);
    let kinds: Vec<_> = rows[1..].iter().map(|row| row[3].as_str()).collect();
    assert_eq!(kinds, ["created", "started", "suspending", "suspended"]);
    assert!(rows[1..].iter().all(|row| row[2] == id), "{rows:?}");
    assert!(rows[1..].iter().all(|row| row[5].starts_with("user (owner")), "{rows:?}");
    let key = world.json(&["key", "create", "ci", "-o", "json"]).await;
    let mut by_key = world.command(&["sbx", "resume", "web"]);
    by_key.env("DORM_KEY", key["key"].as_str().unwrap());
    let resumed = crate::world::end(by_key, b"").await;
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let rows = world.table(&["events", "--limit", "1"]).await;
    assert_eq!(rows[1][3..6], ["resumed".to_owned(), "2".to_owned(), "user (key ci)".to_owned()]);
    let last = world.json(&["events", "--limit", "1", "-o", "json"]).await[0].clone();
    assert_eq!((&last["caller"]["key"], &last["caller"]["key_name"]), (&key["id"], &Value::from("ci")));
    let all = world.json(&["events", "-o", "json"]).await;
    let second = all[1]["number"].as_u64().unwrap().to_string();
    let rest = world.json(&["events", "--after", &second, "--sandbox", "web", "-o", "json"]).await;
    assert_eq!((rest.as_array().unwrap().len(), &rest[0]["kind"]), (4, &Value::from("suspending")));
    world.dorm(&["events", "--sandbox", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn followed_events_come_as_they_happen() {
    let world = World::new().await;
    let id = world.named("web").await;
    let mut child = world.command(&["events", "-f", "--sandbox", &id, "-o", "json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!([next().await, next().await], ["created", "started"]);
    world.named("other").await;
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    assert_eq!([next().await, next().await], ["suspending", "suspended"]);
    child.start_kill().unwrap();
    child.wait().await.unwrap();
}

#[tokio::test]
async fn a_closed_output_ends_it_quietly() {
    let world = World::new().await;
    world.named("web").await;
    let mut child = world.command(&["events", "-f"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    drop(lines);
    // The command ends when it can no longer write its output.
    world.named("other").await;
    let ran = crate::world::wait(child).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (141, ""));
}
