//! A daemon that stops in the middle of an operation that does not end: the operation is left, and
//! the next daemon recovers it.

use dorm_testing::{Daemon, sandbox_process, signal, until};
use rustix::process::Signal;
use serde_json::json;

use crate::place::{Counter, PATIENCE, Place};

/// The exit code of a daemon that has left work to the next start.
const UNFINISHED: Option<i32> = Some(6);

/// The warnings and errors that a stop at its time limit may cause.
const EXPECTED: [&str; 5] = [
    "left for the next start",
    "the next start recovers",
    "closing API connections",
    "does not answer",
    "cannot determine the state of a run",
];

/// Stops the process of a sandbox while the sandbox is being suspended.
async fn hangs(daemon: &Daemon, counter: &Counter) -> u32 {
    let pid = sandbox_process(daemon.data(), &counter.id).expect("a process");
    signal(pid, Signal::STOP).unwrap();
    let suspend = daemon.request(reqwest::Method::POST, &format!("/sandboxes/{}/suspend", counter.id));
    tokio::spawn(async move { drop(suspend.send().await) });
    let begun = || async { Ok(daemon.describe(&counter.id).await?["state"] == "suspending") };
    until(PATIENCE, "it is being suspended", begun).await.unwrap();
    pid
}

/// Checks that the next daemon finds the sandbox unchanged.
async fn is_found_again(place: &mut Place, counter: &mut Counter, pid: u32) {
    signal(pid, Signal::CONT).unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    let runs = || async { Ok(daemon.describe(&counter.id).await?["state"] == "running") };
    until(PATIENCE, "it runs", runs).await.unwrap();
    assert_eq!(sandbox_process(daemon.data(), &counter.id), Some(pid), "it is the same process");
    counter.is_whole(daemon).await;
    daemon.act(&counter.id, "suspend").await.unwrap();
    daemon.act(&counter.id, "resume").await.unwrap();
    counter.is_whole(daemon).await;
}

#[tokio::test]
async fn a_daemon_ends_within_its_limit_although_an_operation_hangs() {
    let mut place = Place::with(&["--shutdown-limit", "3s"]);
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let pid = hangs(place.daemon(), &counter).await;
    assert_eq!(place.daemon_mut().stop().unwrap(), UNFINISHED);
    let log = place.daemon().log();
    assert!(log.contains(&format!("left for the next start: sandbox {}: suspending", counter.id)), "{log}");
    is_found_again(&mut place, &mut counter, pid).await;
    place.end(&EXPECTED).await;
}

#[tokio::test]
async fn a_second_signal_ends_a_daemon_at_once() {
    let mut place = Place::with(&["--shutdown-limit", "1h"]);
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let pid = hangs(place.daemon(), &counter).await;
    signal(place.daemon().pid(), Signal::INT).unwrap();
    let heard = || async { Ok(place.daemon().log().contains("stopping on SIGINT")) };
    until(PATIENCE, "the first signal is heard", heard).await.unwrap();
    assert_eq!(place.daemon_mut().stop().unwrap(), UNFINISHED);
    let log = place.daemon().log();
    assert!(log.contains("ends at once on a second SIGTERM"), "{log}");
    is_found_again(&mut place, &mut counter, pid).await;
    place.end(&EXPECTED).await;
}
