//! Another user of the host attacks the daemon: reads its files, holds its locks, connects to its
//! sockets, opens more connections than it has descriptors. Also the daemon's reaction to a
//! directory that sandboxes cannot reach.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use dorm_testing::Daemon;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};

use crate::place::{Counter, Place, images};

/// A user and group that no program of the host runs as.
const STRANGER: u32 = 64_123;

/// Runs `work` as another user of the host, on a thread of its own.
fn as_stranger<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (user, group) = (rustix::process::Uid::from_raw(STRANGER), rustix::process::Gid::from_raw(STRANGER));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            assert!(std::fs::read("/etc/shadow").is_err(), "this thread still is root");
            work()
        });
        thread.join().unwrap()
    })
}

/// Everything below a directory, as root sees it, without other mounts.
fn all_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let device = std::fs::metadata(directory).unwrap().dev();
    // Files of a sandbox that ends meanwhile may disappear.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_here = |facts: &std::fs::Metadata| facts.is_dir() && facts.dev() == device;
        if entry.metadata().is_ok_and(|facts| is_here(&facts)) {
            all_below(&path, found);
        }
        found.push(path);
    }
}

/// The access that a stranger has to a path, if any.
fn reached(path: &Path) -> Option<&'static str> {
    let is_dead = |error: &io::Error| error.kind() != io::ErrorKind::PermissionDenied;
    let facts = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(_) => return None,
    };
    if facts.is_dir() {
        return std::fs::read_dir(path).is_ok().then_some("is listed");
    }
    if facts.file_type().is_socket() {
        return UnixStream::connect(path).map_or_else(|error| is_dead(&error), |_| true).then_some("is connected to");
    }
    if facts.is_symlink() {
        return None;
    }
    let nonblocking = libc::O_NONBLOCK;
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nonblocking);
    if options.write(true).open(path).is_ok() {
        return Some("is written");
    }
    options.write(false).read(true).open(path).is_ok().then_some("is read and can be locked")
}

fn dorm(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dorm")).args(arguments).output().unwrap()
}

#[tokio::test]
async fn another_user_reads_locks_and_connects_to_nothing_of_the_daemon() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, json!({ "name": "web", "image": "base" })).await;
    let sleeps = daemon.create(json!({ "name": "sleeps", "image": "base" })).await.unwrap();
    daemon.checkpoint(&sleeps, "filesystem").await.unwrap();
    daemon.act(&sleeps, "suspend").await.unwrap();
    daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 << 20 })).await.unwrap();
    let mut paths = vec![daemon.data().to_owned(), "/run/dormouse".into(), "/run/dormouse/net.lock".into()];
    all_below(daemon.data(), &mut paths);
    assert!(paths.len() > 20, "{paths:?}");
    for directory in ["/run", "/var/run", "/tmp"] {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        paths.extend(entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("runsc-")));
    }
    let open: Vec<_> = as_stranger(|| {
        let open = paths.iter().filter_map(|path| reached(path).map(|how| (path, how)));
        // The agent is the same program for all users, and guests' ids must be able to read it. The
        // empty mount point contains nothing.
        let is_known = |path: &Path| path.ends_with("dorm-agent") || path.to_string_lossy().contains("/gvisor/points");
        open.filter(|(path, how)| *how == "is written" || !is_known(path)).collect()
    });
    assert!(open.is_empty(), "{open:#?}");
    let made = as_stranger(|| {
        let places = [daemon.data().join("made"), "/run/dormouse/made".into()];
        places.into_iter().filter(|path| std::fs::write(path, "").is_ok()).collect::<Vec<_>>()
    });
    assert!(made.is_empty(), "{made:?}");
    counter.is_whole(daemon).await;
    daemon.act(&sleeps, "resume").await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn what_an_earlier_version_left_open_is_closed_at_the_start() {
    let mut place = Place::new();
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let data = place.daemon().data().to_owned();
    let open = [("lock", 0o644), ("address", 0o644), ("identity.json", 0o644), ("network", 0o755), ("", 0o755)];
    for (name, mode) in open {
        std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions("/run/dormouse", std::fs::Permissions::from_mode(0o755)).unwrap();
    let held = as_stranger(|| std::fs::File::open(data.join("lock")));
    assert!(held.is_ok(), "the attack worked before");
    drop(held);
    place.daemon_mut().start_again().unwrap();
    let id = place.daemon().create(json!({ "image": "base" })).await.unwrap();
    for (name, _) in &open[..4] {
        assert!(as_stranger(|| std::fs::File::open(data.join(name))).is_err(), "{name}");
    }
    assert!(as_stranger(|| std::fs::read_dir(&data)).is_err());
    assert!(as_stranger(|| std::fs::read_dir("/run/dormouse")).is_err());
    place.daemon().act(&id, "terminate").await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn a_second_daemon_names_the_one_that_holds_the_directory() {
    let place = Place::new();
    let data = place.daemon().data().to_str().unwrap().to_owned();
    let refused = dorm(&["serve", "--listen", "127.0.0.1:0", "--data", &data]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains(&format!("process {}", place.daemon().pid())), "{said}");
    assert!(said.contains("dorm serve"), "{said}");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_directory_that_sandboxes_cannot_reach_is_refused_with_the_fix() {
    let closed = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let data = closed.path().join("data");
    let shown = data.to_str().unwrap();
    let refused = dorm(&["serve", "--listen", "127.0.0.1:0", "--data", shown]);
    let said = String::from_utf8(refused.stderr).unwrap();
    let fix = format!("chmod o+x {}", closed.path().display());
    assert!(!refused.status.success() && said.contains(&fix), "{said}");
    let doctor = dorm(&["doctor", "--data", shown, "-o", "json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "data path").unwrap();
    assert_eq!((&check["verdict"], &report["usable"]), (&json!("fail"), &json!(false)), "{report}");
    assert!(check["next_step"].as_str().unwrap().contains(&fix), "{check}");
    // After the suggested change, the daemon starts.
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let log = closed.path().join("log");
    let daemon = Daemon::start(Path::new(env!("CARGO_BIN_EXE_dorm")), &data, &images(), &log, &[]).unwrap();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    assert_eq!(daemon.exec(&id, &["echo", "works"]).await.unwrap(), (0, "works\n".to_owned()));
    daemon.end().await.unwrap();
}

#[tokio::test]
async fn the_owners_socket_works_below_a_path_longer_than_its_address() {
    let outer = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let data = outer.path().join("a".repeat(60)).join("b".repeat(60));
    let log = outer.path().join("log");
    let daemon = Daemon::start(Path::new(env!("CARGO_BIN_EXE_dorm")), &data, &images(), &log, &[]).unwrap();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    let ran = dorm(&["sbx", "exec", "--data", data.to_str().unwrap(), &id, "--", "echo", "works"]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "works\n", "{ran:?}");
    daemon.end().await.unwrap();
}

fn limit_descriptors(soft: u64) {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum }).unwrap();
}

#[tokio::test]
async fn idle_connections_without_a_key_keep_neither_the_owner_nor_a_key_out() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    // The limit that a shell gives to a daemon.
    limit_descriptors(1024);
    let place = Place::new();
    rustix::process::setrlimit(Resource::Nofile, before).unwrap();
    let daemon = place.daemon();
    let data = daemon.data().to_str().unwrap().to_owned();
    let address = daemon.address().strip_prefix("http://").unwrap();
    let mut idle = Vec::new();
    for _ in 0..1_200 {
        idle.push(std::net::TcpStream::connect(address).unwrap());
    }
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    assert_eq!(daemon.exec(&id, &["echo", "works"]).await.unwrap(), (0, "works\n".to_owned()));
    let listed = dorm(&["sbx", "ls", "--data", &data]);
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("web"), "{listed:?}");
    // New ones may be many for a moment.
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let few = dorm_testing::until(Duration::from_secs(60), "few are open", || async { Ok(descriptors() < 600) }).await;
    assert!(few.is_ok(), "the daemon has {} descriptors open", descriptors());
    drop(idle);
    place.end(&[]).await;
}
