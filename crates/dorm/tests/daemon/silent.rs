//! Sandboxes that do not answer because their process or their agent is stopped: they are not ended
//! for that.

use dorm_testing::{Daemon, sandbox_process, signal, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Counter, PATIENCE, Place};

/// A short limit for agents to answer, and enough time for operations on a busy host.
const OPTIONS: [&str; 6] = ["--agent-limit", "3s", "--operation-limit", "20s", "--min-throughput-mib", "10000"];

/// The warnings that a run that does not answer may cause.
const SILENCE: [&str; 3] = ["does not answer", "cannot determine the state of a run", "did not list its runs"];

fn stop(daemon: &Daemon, id: &str) -> u32 {
    let pid = sandbox_process(daemon.data(), id).expect("a process");
    signal(pid, Signal::STOP).unwrap();
    pid
}

async fn events(daemon: &Daemon, id: &str, kind: &str) -> Vec<Value> {
    let page = daemon.get(&format!("/events?sandbox={id}")).await.unwrap();
    page["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect()
}

async fn is_kept_and_shown(daemon: &Daemon, id: &str, pid: u32) {
    let unreachable = || async { Ok(!daemon.describe(id).await?["unreachable"].is_null()) };
    until(PATIENCE, "it is shown as unreachable", unreachable).await.unwrap();
    assert_eq!(daemon.describe(id).await.unwrap()["state"], "running");
    assert_eq!(sandbox_process(daemon.data(), id), Some(pid), "it is the same process");
    let why = daemon.get(&format!("/sandboxes/{id}/why")).await.unwrap();
    assert_eq!(why["because"][0]["signal"], "run", "{why}");
}

async fn is_back(daemon: &Daemon, counter: &mut Counter, pid: u32) {
    signal(pid, Signal::CONT).unwrap();
    let answers = || async { Ok(daemon.describe(&counter.id).await?["unreachable"].is_null()) };
    until(PATIENCE, "it answers", answers).await.unwrap();
    assert_eq!(sandbox_process(daemon.data(), &counter.id), Some(pid), "it is the same process");
    counter.is_whole(daemon).await;
    assert!(events(daemon, &counter.id, "run_lost").await.is_empty());
}

#[tokio::test]
async fn a_sandbox_whose_process_is_stopped_outlives_a_suspend_a_checkpoint_and_a_restart_of_the_daemon() {
    let mut place = Place::with(&OPTIONS);
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    for verb in ["suspend", "checkpoint"] {
        let daemon = place.daemon();
        let pid = stop(daemon, &id);
        let refused = match verb {
            "suspend" => daemon.act(&id, "suspend").await,
            _ => daemon.checkpoint(&id, "memory").await,
        };
        let refused = format!("{:#}", refused.unwrap_err());
        assert!(refused.contains("raise it with --operation-limit"), "{refused}");
        is_kept_and_shown(daemon, &id, pid).await;
        is_back(daemon, &mut counter, pid).await;
    }
    let pid = stop(place.daemon(), &id);
    place.daemon_mut().stop().unwrap();
    place.daemon_mut().start_again().unwrap();
    is_kept_and_shown(place.daemon(), &id, pid).await;
    is_back(place.daemon(), &mut counter, pid).await;
    place.daemon().act(&id, "suspend").await.unwrap();
    place.daemon().act(&id, "evict").await.unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    counter.is_whole(place.daemon()).await;
    place.end(&SILENCE).await;
}

#[tokio::test]
async fn a_guest_that_has_stopped_its_own_agent_is_suspended_and_its_agent_answers_after_the_resume() {
    let place = Place::with(&OPTIONS);
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let id = counter.id.clone();
    for evict in [false, true] {
        // With the agent stopped, no process can be started, and the end of this one cannot be
        // reported.
        let process = json!({ "argv": ["sh", "-c", "sleep 0.5; kill -STOP 1"] });
        daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
        // The program inside answers on its own port, without the agent.
        let silent = || async {
            let path = format!("/sandboxes/{id}/processes");
            let answer = daemon.try_ask(reqwest::Method::GET, &path, None);
            Ok(tokio::time::timeout(std::time::Duration::from_secs(1), answer).await.is_err())
        };
        until(PATIENCE, "the agent is stopped", silent).await.unwrap();
        let before = events(daemon, &id, "suspended").await.len();
        daemon.act(&id, "suspend").await.unwrap();
        let suspended = events(daemon, &id, "suspended").await;
        let detail = suspended[before]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("saved without being quiesced"), "{suspended:?}");
        if evict {
            daemon.act(&id, "evict").await.unwrap();
        }
        daemon.act(&id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        assert_eq!(daemon.exec(&id, &["true"]).await.unwrap().0, 0);
    }
    assert!(events(daemon, &id, "run_lost").await.is_empty());
    place.end(&SILENCE).await;
}
