//! Failed operations over HTTP: each kind of failure has its status and its code, for every caller
//! that waits.

use std::fs;
use std::time::Duration;

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::Limits;
use dorm_service::Settings;
use serde_json::{Value, json};

use crate::world::{World, eventually};

async fn refused(world: &World, path: &str, body: Value, status: u16, code: &str) -> Value {
    let (seen, answer) = world.call("POST", path, body).await;
    assert_eq!((seen, &answer["code"]), (status, &json!(code)), "POST {path}: {answer}");
    answer
}

#[tokio::test]
async fn a_full_disk_is_507_for_every_operation_that_meets_it() {
    use Operation::{Mount, Pause, Restore, Save, Start};
    let world = World::new().await;
    world.named("web").await;
    world.named("asleep").await;
    let memory = json!({"kind": "memory"});
    let snapshot = world.post("/v1/sandboxes/web/checkpoint", memory).await["id"].clone();
    world.post("/v1/sandboxes/asleep/suspend", Value::Null).await;
    world.post("/v1/sandboxes/asleep/evict", Value::Null).await;
    world.post("/v1/volumes", json!({"name": "data"})).await;
    let forked = world.post("/v1/sandboxes/web/fork", json!({"children": [{"name": "child"}]})).await;
    assert!(forked["children"][0]["sandbox"]["id"].is_string(), "{forked}");
    let of = |verb: &str| format!("/v1/sandboxes/web/{verb}");
    for (path, body, fault) in [
        ("/v1/sandboxes".to_owned(), json!({"image": "base"}), Start),
        ("/v1/sandboxes".to_owned(), json!({"snapshot": snapshot}), Restore),
        (of("suspend"), Value::Null, Save),
        (of("checkpoint"), Value::Null, Save),
        (of("clone"), json!({}), Save),
        (of("clone"), json!({}), Restore),
        (of("fork"), json!({"children": [{}, {}]}), Save),
        (of("fork"), json!({"children": [{}, {}], "on_partial_failure": "roll_back"}), Restore),
        (of("rewind"), json!({"to": snapshot}), Pause),
        (of("rewind"), json!({"to": snapshot}), Restore),
        (of("volumes"), json!({"volume": "data", "path": "/data"}), Mount),
        ("/v1/sandboxes/child/promote".to_owned(), json!({}), Save),
        ("/v1/sandboxes/asleep/resume".to_owned(), Value::Null, Restore),
    ] {
        let struck = world.host.faults().struck(fault);
        world.host.faults().next(fault, Moment::Before, Fault::NoRoom);
        let error = refused(&world, &path, body, 507, "no_room").await;
        assert_eq!(world.host.faults().struck(fault), struck + 1, "{path}");
        assert!(!error["next_step"].as_str().unwrap().is_empty() || path.contains("fork"), "{path}: {error}");
    }
    assert_eq!(world.get("/v1/sandboxes/web").await["state"], "running");
    world.end().await;
}

#[tokio::test]
async fn everybody_who_waits_for_a_suspend_on_a_full_disk_gets_507_and_the_sandbox_continues() {
    let world = World::new().await;
    world.named("web").await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    world.host.faults().always(Operation::Save, Moment::Before, Fault::NoRoom);
    let suspend = || refused(&world, "/v1/sandboxes/web/suspend", Value::Null, 507, "no_room");
    let (first, second, ()) = tokio::join!(suspend(), suspend(), async {
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        world.host.faults().release();
    });
    for told in [first, second] {
        assert_eq!(told["next_step"], "it keeps running; make room on this host, then try again");
        assert!(told["detail"].as_str().unwrap().contains("no room on this host"), "{told}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_part_of_the_hosts_that_is_missing_is_500_and_never_404() {
    let world = World::new().await;
    let id = world.named("web").await.parse().unwrap();
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    world.post("/v1/sandboxes/web/evict", Value::Null).await;
    let sandbox = world.service.describe(&id).await.unwrap().sandbox;
    let image = world.directory.path().join("images").join(sandbox.spec.image.as_str());
    let saved_state = sandbox.state.image().unwrap().saved_state.clone();
    let saved_state = world.directory.path().join("data/saved_states").join(saved_state.as_str());
    let files = json!({"kind": "filesystem"});
    for part in [image, saved_state] {
        let away = world.directory.path().join("away");
        fs::rename(&part, &away).unwrap();
        refused(&world, "/v1/sandboxes/web/resume", Value::Null, 500, "damaged").await;
        refused(&world, "/v1/sandboxes/web/checkpoint", files.clone(), 500, "damaged").await;
        fs::rename(&away, &part).unwrap();
    }
    world.post("/v1/sandboxes/web/resume", Value::Null).await;
    world.end().await;
}

#[tokio::test]
async fn a_snapshot_that_failed_tells_the_code_to_whoever_asks_later() {
    let world = World::new().await;
    world.named("web").await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::NoRoom);
    refused(&world, "/v1/sandboxes/web/checkpoint", Value::Null, 507, "no_room").await;
    let all = world.get("/v1/snapshots").await;
    let failed = &all["snapshots"][0];
    assert_eq!((&failed["status"], &failed["code"]), (&json!("failed"), &json!("no_room")), "{all}");
    world.post("/v1/sandboxes/web/checkpoint", Value::Null).await;
    let all = world.get("/v1/snapshots").await;
    assert_eq!((&all["snapshots"][1]["status"], &all["snapshots"][1]["code"]), (&json!("completed"), &Value::Null));
    world.end().await;
}

#[tokio::test]
async fn an_operation_that_takes_too_long_is_504() {
    let limits = Limits { start: Duration::from_millis(50), ..Limits::default() };
    let world = World::with_settings(Settings { limits, ..Settings::default() }).await;
    world.host.faults().next(Operation::Start, Moment::Before, Fault::Hang);
    refused(&world, "/v1/sandboxes", json!({"image": "base"}), 504, "timed_out").await;
    world.host.faults().release();
    world.end().await;
}

#[tokio::test]
async fn a_store_that_fails_is_500_with_its_code_and_asks_nobody_to_come_back() {
    let world = World::new().await;
    world.named("web").await;
    eventually("the reads of others are over", async || {
        world.store.fail_reads(1);
        let response = world.request("GET", "/v1/events").send().await.unwrap();
        let (status, retry) = (response.status().as_u16(), response.headers().contains_key("retry-after"));
        let answer: Value = response.json().await.unwrap();
        assert!(status == 200 || (status, &answer["code"], retry) == (500, &json!("store_failed"), false));
        status == 500
    })
    .await;
    world.end().await;
}
