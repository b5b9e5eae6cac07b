//! Snapshots that move from one daemon to another through a real registry.

use std::fs;
use std::path::PathBuf;

use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, Place};
use crate::registry::Registry;

/// Random data, so that the registry has none of it before.
const FILL: &str = "head -c 40000000 /dev/urandom > /root/large; sha256sum /root/large";

async fn push(daemon: &Daemon, id: &Value, reference: &str) -> Value {
    let path = format!("/snapshots/{}/push", id.as_str().unwrap());
    daemon.post(&path, json!({ "reference": reference })).await.unwrap()
}

async fn pull(daemon: &Daemon, reference: &str) -> Value {
    daemon.post("/snapshots/pull", json!({ "reference": reference, "labels": { "from": "registry" } })).await.unwrap()
}

async fn count(daemon: &Daemon) -> usize {
    daemon.get("/snapshots").await.unwrap()["snapshots"].as_array().unwrap().len()
}

fn saved_states(daemon: &Daemon) -> Vec<String> {
    let entries = fs::read_dir(daemon.data().join("saved_states")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Starts an operation, and kills the daemon as soon as data has been sent.
async fn killed_under_way(place: &mut Place, path: &str, asked: &Value) {
    let request = place.daemon().request(Method::POST, path).header("accept", "text/event-stream");
    let mut answer = request.json(asked).send().await.unwrap();
    let mut said = String::new();
    // Some data has been sent: the first report only says that none has.
    while said.matches("\"bytes\":").count() < 2 && !said.contains("event: done") {
        said.push_str(&String::from_utf8_lossy(&answer.chunk().await.unwrap().expect("more to come")));
    }
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
}

/// The logins of the daemon, and the networks that it may reach with them, are those of its owner.
#[tokio::test(flavor = "multi_thread")]
async fn another_project_reaches_registries_at_public_addresses_only() {
    let registry = Registry::start().await;
    let place = Place::new();
    let daemon = place.daemon();
    daemon.post("/projects", json!({ "name": "team" })).await.unwrap();
    let in_team = async |path: &str, asked: Value| {
        let request = daemon.request(Method::POST, path).header("x-dormouse-project", "team").json(&asked);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, created) = in_team("/sandboxes", json!({ "image": "base" })).await;
    assert_eq!(status, 201, "{created}");
    let path = format!("/sandboxes/{}/checkpoint", created["id"].as_str().unwrap());
    let (_, snapshot) = in_team(&path, json!({ "kind": "filesystem" })).await;
    let reference = json!({ "reference": registry.named("team/files:1") });
    let push = format!("/snapshots/{}/push", snapshot["id"].as_str().expect("a snapshot"));
    for path in [push.as_str(), "/snapshots/pull", "/images/pull"] {
        let (status, refused) = in_team(path, reference.clone()).await;
        assert!(status >= 400 && refused["detail"].to_string().contains("no public address"), "{path}: {refused}");
    }
    in_team(&format!("/sandboxes/{}/terminate", created["id"].as_str().unwrap()), json!({})).await;
    place.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_goes_through_a_registry_whole_and_only_once() {
    let registry = Registry::start().await;
    let (from, to) = (Place::new(), Place::new());
    let daemon = from.daemon();
    let first = daemon.create(json!({ "image": "base" })).await.unwrap();
    let seen = daemon.exec(&first, &["sh", "-c", FILL]).await.unwrap();
    let files = daemon.checkpoint(&first, "filesystem").await.unwrap()["id"].clone();
    let counter = Counter::create(daemon, json!({ "name": "web", "snapshot": files })).await;
    let memory = daemon.checkpoint(&counter.id, "memory").await.unwrap()["id"].clone();
    let (one, two) = (registry.named("team/files:1"), registry.named("team/memory:1"));
    let sent = push(daemon, &files, &one).await;
    assert!(sent["sent_bytes"].as_u64() >= sent["bytes"].as_u64(), "{sent}");
    let again = push(daemon, &files, &one).await;
    assert_eq!((&again["manifest"], &again["sent_bytes"]), (&sent["manifest"], &json!(0)), "{again}");
    push(daemon, &memory, &two).await;
    let other = to.daemon();
    let taken = pull(other, &one).await;
    assert_eq!((&taken["kind"], &taken["labels"]["from"]), (&json!("filesystem"), &json!("registry")));
    let id = other.create(json!({ "snapshot": taken["id"] })).await.unwrap();
    assert_eq!(other.exec(&id, &["sha256sum", "/root/large"]).await.unwrap(), seen);
    let pinned = format!(
        "{}@{}",
        registry.named("team/memory"),
        push(daemon, &memory, &two).await["manifest"].as_str().unwrap()
    );
    let taken = pull(other, &pinned).await;
    let mut child = counter.child(&other.create(json!({ "snapshot": taken["id"] })).await.unwrap());
    child.is_whole(other).await;
    from.end(&[]).await;
    to.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_or_pull_of_a_killed_daemon_is_done_by_the_next_one_and_leaves_nothing() {
    let registry = Registry::start().await;
    let mut place = Place::new();
    let id = place.daemon().create(json!({ "image": "base" })).await.unwrap();
    let seen = place.daemon().exec(&id, &["sh", "-c", FILL]).await.unwrap();
    let files = place.daemon().checkpoint(&id, "filesystem").await.unwrap()["id"].clone();
    let reference = registry.named("team/files:1");
    let path = format!("/snapshots/{}/push", files.as_str().unwrap());
    killed_under_way(&mut place, &path, &json!({ "reference": reference })).await;
    let sent = push(place.daemon(), &files, &reference).await;
    assert!(sent["sent_bytes"].as_u64() < sent["bytes"].as_u64(), "what was there is not sent again: {sent}");
    let (snapshots, before) = (count(place.daemon()).await, saved_states(place.daemon()).len());
    killed_under_way(&mut place, "/snapshots/pull", &json!({ "reference": reference })).await;
    assert_eq!((count(place.daemon()).await, saved_states(place.daemon()).len()), (snapshots, before));
    let taken = pull(place.daemon(), &reference).await;
    let id = place.daemon().create(json!({ "snapshot": taken["id"] })).await.unwrap();
    assert_eq!(place.daemon().exec(&id, &["sha256sum", "/root/large"]).await.unwrap(), seen);
    place.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_registry_has_spoilt_or_has_not_is_refused_and_nothing_of_it_stays() {
    let registry = Registry::start().await;
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    daemon.exec(&id, &["sh", "-c", FILL]).await.unwrap();
    let files = daemon.checkpoint(&id, "filesystem").await.unwrap()["id"].clone();
    let reference = registry.named("team/files:1");
    push(daemon, &files, &reference).await;
    let (snapshots, before) = (count(daemon).await, saved_states(daemon).len());
    let refused = async |reference: &str, expected: &str| {
        let asked = Some(json!({ "reference": reference }));
        let answer = daemon.try_ask(Method::POST, "/snapshots/pull", asked).await.unwrap();
        let said = answer.body["detail"].as_str().unwrap_or_default();
        assert!(answer.status >= 400 && said.contains(expected), "{expected}: {}", answer.body);
        assert_eq!((count(daemon).await, saved_states(daemon).len()), (snapshots, before), "{expected}");
    };
    refused(&registry.named("team/files:2"), "has no such image").await;
    let path = format!("/snapshots/{}/push", files.as_str().unwrap());
    let pinned = json!({ "reference": format!("{}@sha256:{}", registry.named("a"), "0".repeat(64)) });
    let answer = daemon.try_ask(Method::POST, &path, Some(pinned)).await.unwrap();
    assert!(answer.body["detail"].as_str().unwrap().contains("needs a tag"), "{}", answer.body);
    let largest = blobs(&registry.store()).into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut content = fs::read(&largest).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&largest, content).unwrap();
    refused(&reference, "sends a blob with the digest").await;
    drop(registry);
    refused(&reference, "cannot be reached").await;
    place.end(&[]).await;
}

fn blobs(store: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![store.join("docker/registry/v2/blobs")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}
