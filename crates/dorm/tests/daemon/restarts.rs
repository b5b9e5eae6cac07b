//! Daemons that stop or are killed, and engine processes that are killed from outside.

use dorm_testing::processes_of;
use serde_json::json;

use crate::place::{Counter, Place, becomes};

#[tokio::test]
async fn after_a_stop_and_after_a_kill_everybody_is_where_they_were() {
    let mut place = Place::new();
    let mut counters = Vec::new();
    for name in ["running", "parked", "evicted"] {
        counters.push(Counter::create(place.daemon(), json!({ "name": name, "image": "base" })).await);
    }
    for killed in [false, true] {
        let daemon = place.daemon_mut();
        daemon.act("parked", "suspend").await.unwrap();
        daemon.act("evicted", "suspend").await.unwrap();
        daemon.act("evicted", "evict").await.unwrap();
        if killed {
            daemon.kill().unwrap();
        } else {
            assert_eq!(daemon.stop().unwrap(), Some(0));
        }
        daemon.start_again().unwrap();
        assert_eq!(daemon.describe("running").await.unwrap()["state"], "running");
        assert_eq!(daemon.describe("parked").await.unwrap()["residence"], "parked");
        assert_eq!(daemon.describe("evicted").await.unwrap()["residence"], "evicted");
        for counter in &mut counters {
            daemon.act(&counter.id, "resume").await.unwrap();
            counter.is_whole(daemon).await;
        }
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn a_second_daemon_on_the_same_data_is_refused() {
    let place = Place::new();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dorm"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(place.daemon().data())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("in use by another daemon"), "{said}");
    assert!(said.contains(&place.daemon().pid().to_string()), "{said}");
    place.end(&[]).await;
}

/// Kills the only sandbox's engine process.
fn kill_engine(place: &Place) {
    let mut processes = processes_of(place.daemon().data());
    processes.retain(|(_, line)| line.starts_with("runsc-sandbox"));
    let [(pid, _)] = processes.as_slice() else { panic!("not one process: {processes:#?}") };
    dorm_testing::signal(*pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_killed_engine_process_takes_its_sandbox_back_to_its_image_or_ends_it_with_the_cause() {
    let place = Place::with(&["--warm-containers", "0"]);
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    let at_image = counter.visits();
    counter.is_whole(daemon).await;
    kill_engine(&place);
    becomes(daemon, &id, "suspended").await;
    daemon.act(&id, "resume").await.unwrap();
    counter.back_to(at_image);
    counter.is_whole(daemon).await;
    let events = daemon.get(&format!("/events?sandbox={id}&limit=100")).await.unwrap().to_string();
    assert!(events.contains("run_lost"), "{events}");

    daemon.act(&id, "terminate").await.unwrap();
    let without = daemon.create(json!({ "name": "other", "image": "base" })).await.unwrap();
    kill_engine(&place);
    let over = becomes(daemon, &without, "terminated").await;
    assert!(over["cause"].to_string().contains("no sleep image"), "{over}");
    place.end(&["a run ended unexpectedly"]).await;
}
