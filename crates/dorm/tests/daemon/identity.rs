//! Data directories that lose their database, get an older one, are copied, or are moved while
//! their sandboxes run: no sandbox is ended by that.

use std::path::{Path, PathBuf};
use std::process::Command;

use dorm_testing::{Daemon, processes_of};
use reqwest::Method;
use serde_json::json;

use crate::place::{Counter, Place, becomes};

const DATABASE: [&str; 3] = ["dormouse.db", "dormouse.db-wal", "dormouse.db-shm"];

/// Moves the database of a stopped daemon from one directory to another.
fn move_database(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in DATABASE.iter().filter(|name| from.join(name).exists()) {
        std::fs::rename(from.join(name), to.join(name)).unwrap();
    }
}

/// The processes of the sandboxes of a directory.
fn sandboxes(data: &Path) -> Vec<u32> {
    let all = processes_of(data).into_iter();
    let mut pids: Vec<_> = all.filter(|(_, line)| line.starts_with("runsc-sandbox")).map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids
}

/// The runs that the daemon leaves alone, as `dorm gc` lists them.
async fn left_alone(daemon: &Daemon) -> Vec<String> {
    let list = daemon.get("/gc").await.unwrap();
    let runs = list["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "run");
    runs.map(|run| format!("{} {}", run["id"].as_str().unwrap(), run["why"])).collect()
}

pub(crate) async fn metric(daemon: &Daemon, name: &str) -> String {
    let address = format!("{}/metrics", daemon.address());
    let text = reqwest::Client::builder().no_proxy().build().unwrap().get(address).bearer_auth(daemon.key()).send();
    let text = text.await.unwrap().text().await.unwrap();
    text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned()
}

const LEFT_ALONE: &str = "no record names this run";

#[tokio::test]
async fn a_lost_or_empty_database_is_refused_beside_sandboxes_that_continue_when_it_is_back() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let mut running = Counter::create(place.daemon(), json!({ "name": "running", "image": "base" })).await;
    let mut parked = Counter::create(place.daemon(), json!({ "name": "parked", "image": "base" })).await;
    place.daemon().act("parked", "suspend").await.unwrap();
    let (data, aside) = (place.daemon().data().to_owned(), place.directory().join("aside"));
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let alive = sandboxes(&data);
    assert_eq!(alive.len(), 2);
    move_database(&data, &aside);
    let refused = place.daemon_mut().start_again().unwrap_err().to_string();
    for word in ["dormouse.db is missing", "1 saved state, 2 runs", "--new-store"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert!(!data.join("dormouse.db").exists());
    std::fs::write(data.join("dormouse.db"), "").unwrap();
    let refused = place.daemon_mut().start_again().unwrap_err().to_string();
    assert!(refused.contains("dormouse.db is empty"), "{refused}");
    assert_eq!(sandboxes(&data), alive);

    // A new database knows nothing of the sandboxes and leaves them alone.
    place.daemon_mut().start_again_with(&["--warm-containers", "0", "--new-store"]).unwrap();
    let daemon = place.daemon_mut();
    assert_eq!(daemon.get("/sandboxes").await.unwrap()["sandboxes"], json!([]));
    assert_eq!(left_alone(daemon).await.len(), 2);
    assert_eq!(metric(daemon, "dorm_unrecorded_runs").await, "dorm_unrecorded_runs 2");
    assert_eq!(daemon.stop().unwrap(), Some(0));
    assert_eq!(sandboxes(&data), alive);

    move_database(&data, &place.directory().join("new"));
    move_database(&aside, &data);
    place.daemon_mut().start_again_with(&["--warm-containers", "0"]).unwrap();
    running.is_whole(place.daemon()).await;
    place.daemon().act("parked", "resume").await.unwrap();
    parked.is_whole(place.daemon()).await;
    place.end(&[LEFT_ALONE]).await;
}

#[tokio::test]
async fn an_older_database_ends_no_sandbox_that_is_newer() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let web = json!({ "name": "web", "image": "base" });
    let mut web = Counter::create(place.daemon(), web).await;
    let mut steady = Counter::create(place.daemon(), json!({ "name": "steady", "image": "base" })).await;
    let daemon = place.daemon();
    daemon.act("web", "suspend").await.unwrap();
    daemon.act("web", "evict").await.unwrap();
    let (data, older) = (daemon.data().to_owned(), place.directory().join("older.db"));
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    std::fs::copy(data.join(DATABASE[0]), &older).unwrap();

    // The sleep image in the older database no longer exists later, and the database does not have
    // the last one.
    place.daemon_mut().start_again().unwrap();
    for _ in 0..2 {
        let daemon = place.daemon();
        daemon.act("web", "resume").await.unwrap();
        web.is_whole(daemon).await;
        daemon.act("web", "suspend").await.unwrap();
        daemon.act("web", "evict").await.unwrap();
    }
    place.daemon().act("web", "resume").await.unwrap();
    web.is_whole(place.daemon()).await;
    let later = Counter::create(place.daemon(), json!({ "image": "base" })).await;
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let alive = sandboxes(&data);
    std::fs::copy(&older, data.join(DATABASE[0])).unwrap();

    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    becomes(daemon, "web", "running").await;
    assert_eq!(sandboxes(&data), alive, "{}", daemon.log());
    web.is_whole(daemon).await;
    steady.is_whole(daemon).await;
    let events = daemon.get(&format!("/events?sandbox={}&limit=100", web.id)).await.unwrap().to_string();
    assert!(events.contains("recovered") && events.contains("older than the run"), "{events}");
    daemon.act("web", "suspend").await.unwrap();
    daemon.act("web", "resume").await.unwrap();
    web.is_whole(daemon).await;

    let left = left_alone(daemon).await;
    assert!(matches!(left.as_slice(), [one] if one.contains(&later.id)), "{left:?}");
    daemon.ask(Method::POST, "/gc?runs=true", None).await.unwrap();
    assert!(left_alone(daemon).await.is_empty());
    assert_eq!(sandboxes(&data).len(), 2);
    place.end(&[LEFT_ALONE, "the record was older than the run"]).await;
}

/// Copies a directory as a user would.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--one-file-system"]).arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn daemon_on(place: &Place, data: &Path, options: &[&str]) -> anyhow::Result<Daemon> {
    let (dorm, log) = (Path::new(env!("CARGO_BIN_EXE_dorm")), PathBuf::from(format!("{}.log", data.display())));
    let images = crate::place::images();
    let mut all = vec!["--warm-containers", "0"];
    all.extend(options);
    assert!(data.starts_with(place.directory()));
    Daemon::start(dorm, data, &images, &log, &all)
}

#[tokio::test]
async fn a_daemon_on_a_copy_leaves_the_sandboxes_of_the_original_alone() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let mut running = Counter::create(place.daemon(), json!({ "name": "running", "image": "base" })).await;
    let mut parked = Counter::create(place.daemon(), json!({ "name": "parked", "image": "base" })).await;
    let mut asleep = Counter::create(place.daemon(), json!({ "name": "asleep", "image": "base" })).await;
    for (name, verbs) in [("parked", &["suspend"][..]), ("asleep", &["suspend", "evict"][..])] {
        for verb in verbs {
            place.daemon().act(name, verb).await.unwrap();
        }
    }
    let data = place.daemon().data().to_owned();
    let copied = place.directory().join("copy");
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let alive = sandboxes(&data);
    copy(&data, &copied);
    let refused = daemon_on(&place, &copied, &[]).unwrap_err().to_string();
    for word in ["is a copy of the data directory", "2 sandboxes still run", "--as-copy"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(sandboxes(&data), alive);

    let mut other = daemon_on(&place, &copied, &["--as-copy"]).unwrap();
    assert_eq!(left_alone(&other).await.len(), 2);
    assert_eq!(metric(&other, "dorm_foreign_runs").await, "dorm_foreign_runs 2");
    // A suspended sandbox was copied with the directory.
    other.act("asleep", "resume").await.unwrap();
    let mut twin = asleep.child(&asleep.id);
    twin.is_whole(&other).await;
    other.ask(Method::POST, "/gc?runs=true", None).await.unwrap();
    other.end_sandboxes().await.unwrap();
    assert_eq!(other.stop().unwrap(), Some(0));
    assert_eq!(sandboxes(&data), alive, "{}", other.log());

    place.daemon_mut().start_again().unwrap();
    running.is_whole(place.daemon()).await;
    for (name, counter) in [("parked", &mut parked), ("asleep", &mut asleep)] {
        place.daemon().act(name, "resume").await.unwrap();
        counter.is_whole(place.daemon()).await;
    }
    place.daemon().end_sandboxes().await.unwrap();
    // When no run of the original is left, the copied files of its runs are deleted.
    let mut other = daemon_on(&place, &copied, &[]).unwrap();
    assert!(left_alone(&other).await.is_empty());
    assert_eq!(std::fs::read_dir(copied.join("gvisor/containers")).unwrap().count(), 0);
    assert_eq!(other.stop().unwrap(), Some(0));
    place.end(&[]).await;
}

#[tokio::test]
async fn a_moved_directory_takes_its_sandboxes_along() {
    let mut place = Place::new();
    let daemon = place.daemon();
    daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 << 20 })).await.unwrap();
    let mut counters = Vec::new();
    for name in ["running", "parked", "evicted"] {
        let mut asked = json!({ "name": name, "image": "base" });
        if name == "running" {
            asked["volumes"] = json!([{ "volume": "data", "path": "/data" }]);
        }
        counters.push(Counter::create(daemon, asked).await);
    }
    daemon.act("parked", "suspend").await.unwrap();
    daemon.act("evicted", "suspend").await.unwrap();
    daemon.act("evicted", "evict").await.unwrap();
    let (data, moved) = (daemon.data().to_owned(), place.directory().join("elsewhere"));
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let alive = sandboxes(&data);
    std::fs::rename(&data, &moved).unwrap();
    let daemon = daemon_on(&place, &moved, &[]).unwrap();
    place.replace(daemon);
    let daemon = place.daemon();
    assert!(alive.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists()));
    for counter in &mut counters {
        daemon.act(&counter.id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        let written = daemon.exec(&counter.id, &["sh", "-c", "echo x > /root/file && cat /root/file"]).await.unwrap();
        assert_eq!(written, (0, "x\n".to_owned()));
    }
    let on_volume = daemon.exec("running", &["sh", "-c", "echo y > /data/file && cat /data/file"]).await.unwrap();
    assert_eq!(on_volume, (0, "y\n".to_owned()));
    for counter in &mut counters {
        daemon.act(&counter.id, "suspend").await.unwrap();
        daemon.act(&counter.id, "evict").await.unwrap();
        daemon.act(&counter.id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
    }
    place.end(&[]).await;
}
