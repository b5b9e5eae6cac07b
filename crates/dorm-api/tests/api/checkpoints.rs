use dorm_engine_fake::{Fault, Moment, Operation};
use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn what_is_taken_by_itself_is_shown_and_can_be_changed_in_parts() {
    let world = World::new().await;
    let body = json!({"image": "base", "name": "web", "checkpoints": {"every_secs": 60}});
    let made = world.post("/v1/sandboxes", body).await;
    let policy = |every: f64, kind: &str, keep: &str| json!({"every_secs": every, "kind": kind, "keep": keep});
    assert_eq!(made["checkpoints"], policy(60.0, "filesystem", "3,24x1h,7x1d"));
    let path = "/v1/sandboxes/web/checkpoints";
    for (change, expected) in [
        (json!({"every_secs": 90.5}), policy(90.5, "filesystem", "3,24x1h,7x1d")),
        (json!({"kind": "memory"}), policy(90.5, "memory", "3,24x1h,7x1d")),
        (json!({"keep": "48x30m,2"}), policy(90.5, "memory", "2,48x30m")),
        (json!({"off": true}), Value::Null),
        (json!({"every_secs": 10, "keep": "1"}), policy(10.0, "filesystem", "1")),
    ] {
        assert_eq!(world.post(path, change.clone()).await["checkpoints"], expected, "{change}");
        assert_eq!(world.get("/v1/sandboxes/web").await["checkpoints"], expected, "{change}");
    }
    let plain = world.sandbox().await;
    assert_eq!(world.get(&format!("/v1/sandboxes/{plain}")).await["checkpoints"], Value::Null);
}

#[tokio::test]
async fn a_command_is_run_after_the_snapshot_that_it_asks_for_and_not_without_it() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/exec");
    let answer = world.post(&path, json!({"shell": "echo one", "checkpoint": "filesystem"})).await;
    let first = world.get("/v1/snapshots").await["snapshots"][0].clone();
    assert_eq!((&answer["checkpoint"], &answer["stdout"]), (&first["id"], &json!("one\n")));
    assert_eq!((&first["made_by"], &first["status"]), (&json!("policy"), &json!("completed")));
    let request = world.request("POST", &path).json(&json!({"argv": ["true"], "checkpoint": "memory"}));
    let events = world.events_of(request).await.rest().await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["checkpoint", "started", "exit"]);
    let second = world.get("/v1/snapshots").await["snapshots"][1].clone();
    assert_eq!((&events[0].data["snapshot"], &second["kind"]), (&second["id"], &json!("memory")));
    let asked = world.post(&format!("/v1/sandboxes/{id}/checkpoint"), json!({})).await;
    assert_eq!(asked["made_by"], "request");
    world.host.faults().next(Operation::Capture, Moment::Before, Fault::Fail);
    let body = json!({"shell": "echo ran > /ran", "checkpoint": "filesystem"});
    let (status, refused) = world.call("POST", &path, body).await;
    assert_eq!(status, 500, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("snapshot"), "{refused}");
    let there = world.post(&path, json!({"argv": ["cat", "/ran"]})).await;
    assert_ne!(there["exit_code"], 0, "the command was not run");
    assert!(world.post(&path, json!({"argv": ["true"]})).await.get("checkpoint").is_none());
}
