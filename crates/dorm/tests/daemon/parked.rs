//! Parked sandboxes that have released their memory and map it from their image.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::json;

use crate::identity::metric;
use crate::place::{PATIENCE, Place};

/// Keeps 64 MiB in memory. Asked by one FIFO, it compares them with their hash, changes one MiB,
/// and answers by another FIFO.
const KEEPER: &str = "
import hashlib, os
held, at = bytearray(os.urandom(64 << 20)), 0
for path in ('/run/go', '/run/said'): os.mkfifo(path)
open('/run/expected', 'w').write(hashlib.sha256(held).hexdigest())
while True:
    open('/run/go').read()
    said = hashlib.sha256(held).hexdigest()
    held[at << 20:(at + 1) << 20] = os.urandom(1 << 20)
    at += 1
    open('/run/expected.new', 'w').write(hashlib.sha256(held).hexdigest())
    expected = open('/run/expected').read()
    os.rename('/run/expected.new', '/run/expected')
    open('/run/said', 'w').write('right' if said == expected else 'wrong')
";

async fn keeper(daemon: &Daemon) -> String {
    let id = daemon.create(json!({ "name": "keeper", "image": "base" })).await.unwrap();
    daemon.write(&id, "/keeper.py", KEEPER.into()).await.unwrap();
    let process = json!({ "argv": ["python3", "/keeper.py"] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    let is_there = async || Ok(daemon.exec(&id, &["test", "-s", "/run/expected"]).await?.0 == 0);
    until(PATIENCE, "the keeper is ready", is_there).await.unwrap();
    id
}

async fn is_right(daemon: &Daemon, id: &str) -> bool {
    let (code, said) = daemon.exec(id, &["sh", "-c", "echo > /run/go; cat /run/said"]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    said == "right"
}

/// Suspends a sandbox and waits until its run has released its memory, if that is much: until then
/// the daemon has the pages of its image open. Returns their path.
async fn suspend(daemon: &Daemon, id: &str) -> PathBuf {
    daemon.act(id, "suspend").await.unwrap();
    let is_open = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().flatten();
        let mut paths = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        paths.any(|path| path.ends_with("pages.img"))
    };
    until(PATIENCE, "the run releases its memory", async || Ok(!is_open())).await.unwrap();
    let small = async || Ok(parked_bytes(daemon).await < 48 << 20);
    until(PATIENCE, "the daemon knows what a parked run holds", small).await.unwrap();
    let saved_states = std::fs::read_dir(daemon.data().join("saved_states")).unwrap().flatten();
    let images = saved_states.map(|one| one.path().join("pages.img")).filter(|pages| pages.exists());
    images.max_by_key(|pages| std::fs::metadata(pages).unwrap().modified().unwrap()).unwrap()
}

/// Returns the memory that all parked sandboxes hold, as the metrics tell it.
async fn parked_bytes(daemon: &Daemon) -> u64 {
    let line = metric(daemon, "dorm_parked_bytes").await;
    let (_, bytes) = line.rsplit_once(' ').unwrap();
    bytes.parse().unwrap()
}

fn flip(pages: &Path) {
    let file = std::fs::File::options().read(true).write(true).open(pages).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// Returns whether images of this daemon leave out what an earlier one has.
async fn has_bases(daemon: &Daemon) -> bool {
    let info = daemon.get("/info").await.unwrap();
    info["engine"]["maps_memory"] == true && info["engine"]["shares_blocks"] != true
}

#[tokio::test]
async fn a_sandbox_that_sleeps_again_and_again_in_memory_keeps_it_and_writes_what_has_changed() {
    let mut place = Place::new();
    let id = keeper(place.daemon()).await;
    let has_bases = has_bases(place.daemon()).await;
    let mut first = None;
    for round in 0..4 {
        let pages = suspend(place.daemon(), &id).await;
        let bytes = std::fs::metadata(&pages).unwrap().len();
        let whole = *first.get_or_insert(bytes);
        assert!(!has_bases || round == 0 || bytes < whole / 2, "{bytes} of {whole} bytes in round {round}");
        if round == 2 {
            place.daemon_mut().kill().unwrap();
            place.daemon_mut().start_again().unwrap();
        }
        assert_eq!(place.daemon().describe(&id).await.unwrap()["residence"], "parked");
        place.daemon().act(&id, "resume").await.unwrap();
        assert!(is_right(place.daemon(), &id).await, "{round}");
    }
    suspend(place.daemon(), &id).await;
    place.daemon().act(&id, "evict").await.unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    assert!(is_right(place.daemon(), &id).await, "from its last image");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_sandbox_whose_image_was_damaged_while_it_was_parked_is_not_resumed_with_other_memory() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = keeper(daemon).await;
    let pages = suspend(daemon, &id).await;
    flip(&pages);
    let refused = daemon.try_ask(Method::POST, &format!("/sandboxes/{id}/resume"), None).await.unwrap();
    assert_eq!(refused.body["code"], json!("damaged"), "{refused:?}");
    assert!(refused.body.to_string().contains("pages.img"), "{refused:?}");
    assert_eq!(daemon.describe(&id).await.unwrap()["residence"], "evicted");
    flip(&pages);
    daemon.act(&id, "resume").await.unwrap();
    assert!(is_right(daemon, &id).await);
    place.end(&["is damaged"]).await;
}

#[tokio::test]
async fn damage_to_a_base_is_found_before_a_parked_run_that_maps_only_the_base_is_resumed() {
    let place = Place::new();
    let daemon = place.daemon();
    if !has_bases(daemon).await {
        return place.end(&[]).await;
    }
    let id = keeper(daemon).await;
    suspend(daemon, &id).await;
    daemon.act(&id, "resume").await.unwrap();
    assert!(is_right(daemon, &id).await);
    let base = suspend(daemon, &id).await.with_file_name("pages_base.img");
    flip(&base);
    let refused = daemon.try_ask(Method::POST, &format!("/sandboxes/{id}/resume"), None).await.unwrap();
    assert_eq!(refused.body["code"], json!("damaged"), "{refused:?}");
    assert!(refused.body.to_string().contains("pages_base.img"), "{refused:?}");
    flip(&base);
    daemon.act(&id, "resume").await.unwrap();
    assert!(is_right(daemon, &id).await);
    place.end(&["is damaged"]).await;
}

#[tokio::test]
async fn a_parked_run_survives_damage_to_files_of_its_image_that_it_does_not_need() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = keeper(daemon).await;
    let state = suspend(daemon, &id).await.with_file_name("checkpoint.img");
    flip(&state);
    daemon.act(&id, "resume").await.unwrap();
    assert!(is_right(daemon, &id).await);
    let view = daemon.act(&id, "suspend").await.unwrap();
    assert_eq!(view["residence"], "parked");
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert!(is_right(daemon, &id).await, "from its new image");
    place.end(&[]).await;
}
