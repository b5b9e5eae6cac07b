//! Full, slow and failing disks under a real daemon.

mod small;

use std::path::PathBuf;

use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, PATIENCE, Place, images};
use small::{SmallDisk, loop_of, run};

const MIB: u64 = 1 << 20;

/// The warnings and errors that a full disk may cause.
const FULL: &[&str] = &[
    "paused",
    "nearly full",
    "on a full disk",
    "disk is full",
    "warm container",
    "written down",
    "cannot record",
    "incomplete saved state",
    "cannot record the phase",
    "not recorded",
    "recorded yet",
    "mapped",
    "pulls",
    "cannot record the end",
    "half-written",
    "slow statement",
    "held back",
    "images to prepare",
];

fn named(name: &str) -> Value {
    json!({ "name": name, "image": "base", "resources": { "disk_bytes": 2048 * MIB } })
}

async fn event(daemon: &Daemon, id: &str, kind: &str) {
    let noted = || async {
        let events = daemon.get(&format!("/events?sandbox={id}&limit=100")).await?;
        Ok(events.to_string().contains(kind))
    };
    until(PATIENCE, kind, noted).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_writes_more_than_the_host_has_is_paused_and_loses_nothing() {
    let disk = SmallDisk::new(1200);
    let place =
        Place::on(&disk.path(), &images(), &disk.log(), &["--warm-containers", "0", "--disk-overcommit", "100"]);
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, named("web")).await;
    let id = counter.id.clone();
    disk.fill(300 * MIB);
    // The guest writes faster than any disk, and never syncs.
    let script = "import hashlib, os\nh = hashlib.sha256()\nf = open('/root/big', 'wb')\n\
                  for i in range(400):\n    b = os.urandom(1 << 20)\n    h.update(b)\n    f.write(b)\nf.close()\n\
                  open('/root/sum', 'w').write(h.hexdigest())";
    let process = json!({ "argv": ["python3", "-c", script] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    event(daemon, &id, "disk_paused").await;
    assert_eq!(daemon.describe(&id).await.unwrap()["paused_for_disk"], true);
    let why = daemon.get(&format!("/sandboxes/{id}/why")).await.unwrap().to_string();
    assert!(why.contains("nearly full") && why.contains("of the host's disk are free"), "{why}");
    let path = format!("/sandboxes/{id}/exec");
    let refused = daemon.try_ask(Method::POST, &path, Some(json!({ "argv": ["true"] }))).await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (507, &json!("no_room")), "{}", refused.body);
    // All data that was accepted from the guest fits on the disk, to the last byte.
    run(&mut std::process::Command::new("sync"));
    assert!(disk.free() > 0, "the host's disk became full");
    disk.empty();
    event(daemon, &id, "disk_resumed").await;
    let done = || async { Ok(daemon.exec(&id, &["test", "-s", "/root/sum"]).await?.0 == 0) };
    until(PATIENCE, "the writer is done", done).await.unwrap();
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    let check = "test $(sha256sum < /root/big | cut -c1-64) = $(cat /root/sum)";
    let (code, said) = daemon.exec(&id, &["sh", "-c", check]).await.unwrap();
    assert_eq!(code, 0, "what it has read back is not what it wrote: {said}");
    counter.is_whole(daemon).await;
    place.end(FULL).await;
}

#[tokio::test]
async fn a_guest_whose_writes_were_lost_is_never_saved_as_good() {
    let disk = SmallDisk::new(900);
    // The disk becomes full under a running guest: with a floor of 0 the daemon does not pause it.
    let options =
        ["--warm-containers", "0", "--disk-overcommit", "100", "--disk-floor-mib", "0", "--disk-keep-mib", "0"];
    let place = Place::on(&disk.path(), &images(), &disk.log(), &options);
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, named("web")).await;
    let id = counter.id.clone();
    disk.fill(0);
    let line = "dd if=/dev/urandom of=/root/big bs=1M count=200 2>/dev/null && echo told that it worked";
    let (_, said) = daemon.exec(&id, &["sh", "-c", line]).await.unwrap();
    assert!(said.contains("told that it worked"), "{said}");
    // The kernel would write back after a while; `sync` makes it write now.
    run(&mut std::process::Command::new("sync"));
    disk.empty();
    for _ in 0..2 {
        let path = format!("/sandboxes/{id}/suspend");
        let refused = daemon.try_ask(Method::POST, &path, Some(json!({}))).await.unwrap();
        assert!(refused.status >= 400, "zeros were saved as good: {}", refused.body);
        assert!(refused.body.to_string().contains("has lost writes"), "{}", refused.body);
    }
    assert_eq!(daemon.describe(&id).await.unwrap()["state"], "running");
    let why = daemon.get(&format!("/sandboxes/{id}/why")).await.unwrap().to_string();
    assert!(why.contains("has lost writes"), "{why}");
    counter.is_whole(daemon).await;
    place.end(&["lost writes"]).await;
}

/// A daemon on a small disk with images of its own, and one object of every kind on it.
struct Filled {
    place: Place,
    /// A running and a suspended one.
    sandboxes: [String; 2],
    snapshot: String,
}

async fn filled(disk: &SmallDisk, options: &[&str]) -> Filled {
    let own: PathBuf = disk.path().join("images");
    std::fs::create_dir_all(own.join("tags")).unwrap();
    let digest = std::fs::read_to_string(images().join("tags/base")).unwrap();
    run(std::process::Command::new("cp").arg("-a").args([images().join(digest.trim()), own.clone()]));
    std::fs::write(own.join("tags/base"), digest).unwrap();
    let place = Place::on(&disk.path(), &own, &disk.log(), options);
    let daemon = place.daemon();
    let source = disk.path().join("source");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/file"), "something else").unwrap();
    daemon.import_image(&source, "tiny").await.unwrap();
    let runs = daemon.create(named("runs")).await.unwrap();
    let snapshot = daemon.checkpoint(&runs, "memory").await.unwrap()["id"].as_str().unwrap().to_owned();
    let sleeps = daemon.create(named("sleeps")).await.unwrap();
    daemon.act(&sleeps, "suspend").await.unwrap();
    daemon.act(&sleeps, "evict").await.unwrap();
    Filled { place, sandboxes: [runs, sleeps], snapshot }
}

#[tokio::test]
async fn a_completely_full_disk_can_be_emptied() {
    let disk = SmallDisk::new(1100);
    let options =
        ["--warm-containers", "0", "--disk-overcommit", "100", "--disk-floor-mib", "32", "--disk-keep-mib", "48"];
    let Filled { mut place, sandboxes: [runs, sleeps], snapshot } = filled(&disk, &options).await;
    let whole = || async { Ok(disk.path().join("images").exists() && reserve(&place) >= 48 * MIB) };
    until(PATIENCE, "the reserve is whole", whole).await.unwrap();
    // Each follows a start on a disk without a free block.
    for what in ["image", "snapshot", "suspended", "running", "gc"] {
        place.daemon_mut().kill().unwrap();
        disk.fill(0);
        assert_eq!(disk.free(), 0);
        place.daemon_mut().start_again().unwrap_or_else(|error| panic!("start before {what}: {error:#}"));
        disk.fill(0);
        let daemon = place.daemon();
        let done = match what {
            "image" => daemon.ask(Method::DELETE, "/images/tiny", None).await,
            "snapshot" => daemon.ask(Method::DELETE, &format!("/snapshots/{snapshot}"), None).await,
            "suspended" => daemon.act(&sleeps, "terminate").await,
            "running" => daemon.act(&runs, "terminate").await,
            _ => daemon.post("/gc", json!({})).await,
        };
        done.unwrap_or_else(|error| panic!("{what}: {error:#}\n{}", daemon.log()));
        disk.empty();
        let whole = || async { Ok(reserve(&place) >= 48 * MIB) };
        until(PATIENCE, "the reserve is whole again", whole).await.unwrap();
    }
    for id in [&runs, &sleeps] {
        assert_eq!(place.daemon().describe(id).await.unwrap()["state"], "terminated");
    }
    place.end(FULL).await;
}

fn reserve(place: &Place) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(place.daemon().data().join("reserve")).map_or(0, |facts| facts.blocks() * 512)
}

#[tokio::test]
async fn what_a_suspended_sandbox_wrote_to_a_volume_survives_a_loss_of_power() {
    let disk = SmallDisk::new(900);
    let mut place =
        Place::on(&disk.path(), &images(), &disk.log(), &["--warm-containers", "0", "--disk-overcommit", "100"]);
    let daemon = place.daemon();
    daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 * MIB })).await.unwrap();
    let mut asked = named("web");
    asked["volumes"] = json!([{ "volume": "data", "path": "/data" }]);
    let id = daemon.create(asked).await.unwrap();
    let line = "dd if=/dev/urandom of=/data/file bs=1M count=8 2>/dev/null && sha256sum < /data/file";
    let (code, sum) = daemon.exec(&id, &["sh", "-c", line]).await.unwrap();
    assert_eq!(code, 0, "{sum}");
    daemon.act(&id, "suspend").await.unwrap();
    // The daemon is killed before the power is cut; otherwise it would log warnings.
    place.daemon_mut().kill().unwrap();
    cut_power(&disk);
    end_runs(&place).await;
    let is_unmounted = || async { Ok(disk.unmount().is_ok()) };
    until(PATIENCE, "the disk is unmounted", is_unmounted).await.unwrap();
    disk.mount_copy();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    daemon.act(&id, "resume").await.unwrap();
    let (_, now) = daemon.exec(&id, &["sh", "-c", "sha256sum < /data/file"]).await.unwrap();
    assert_eq!(now, sum, "the volume is not what it was when the sandbox was suspended");
    place.end(&["parked", "image is restored"]).await;
}

/// From now on nothing reaches the disk, as after a power cut: the journal is not flushed.
fn cut_power(disk: &SmallDisk) {
    let top = std::fs::File::open(disk.path()).unwrap();
    let how: u32 = 2;
    // SAFETY: the request reads one number, which outlives the call; the descriptor is open.
    #[allow(unsafe_code)]
    let cut = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&top), 0x8004_587D, std::ptr::from_ref(&how)) };
    assert_eq!(cut, 0, "{}", std::io::Error::last_os_error());
}

/// Thaws a process. A frozen one, such as that of a parked sandbox, does not die before it is
/// thawed.
fn thaw(pid: u32) {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // Never creates the file: if both versions of control groups are mounted, that would be one on
    // the host.
    let write = |path: String, text: &str| {
        let file = std::fs::OpenOptions::new().write(true).open(path);
        let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    };
    for line in groups.lines() {
        if let Some(group) = line.split_once(":freezer:").map(|(_, group)| group) {
            write(format!("/sys/fs/cgroup/freezer{group}/freezer.state"), "THAWED");
        } else if let Some(group) = line.strip_prefix("0::") {
            write(format!("/sys/fs/cgroup{group}/cgroup.freeze"), "0");
        }
    }
}

/// Ends the runs and unmounts the mounts of a host that has lost its power.
async fn end_runs(place: &Place) {
    let data = place.daemon().data().to_owned();
    let directory = data.parent().unwrap();
    let is_over = || async {
        for (pid, _) in dorm_testing::processes_of(directory) {
            thaw(pid);
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        for point in points.filter(|point| point.starts_with(directory)).collect::<Vec<_>>().into_iter().rev() {
            let _ = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH);
        }
        Ok(dorm_testing::left_overs(directory).is_empty())
    };
    until(PATIENCE, "nothing of the host continues", is_over).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_hardly_moves_keeps_nobody_else_waiting() {
    let place = Place::with(&["--warm-containers", "0"]);
    let daemon = place.daemon();
    for name in ["slow", "fine"] {
        daemon.post("/volumes", json!({ "name": name, "size_bytes": 256 * MIB })).await.unwrap();
    }
    let with = |name: &str| {
        let mut asked = named(name);
        asked["volumes"] = json!([{ "volume": name, "path": "/data" }]);
        asked
    };
    let slow = daemon.create(with("slow")).await.unwrap();
    let volumes = daemon.get("/volumes").await.unwrap();
    let volume = volumes["volumes"].as_array().unwrap().iter().find(|one| one["name"] == "slow").unwrap();
    let image = daemon.data().join("volumes").join(volume["id"].as_str().unwrap()).join("disk.img");
    let number = loop_of(&image);
    let throttle = |rate: u64| {
        let file = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
        std::fs::write(file, format!("7:{number} {rate}")).unwrap();
    };
    let line = "dd if=/dev/zero of=/data/file bs=1M count=64 2>/dev/null";
    assert_eq!(daemon.exec(&slow, &["sh", "-c", line]).await.unwrap().0, 0);
    throttle(500_000);
    // Writing the cached data takes two minutes.
    let path = format!("/sandboxes/{slow}/suspend");
    let suspending = daemon.try_ask(Method::POST, &path, Some(json!({})));
    let others = async {
        until(PATIENCE, "it is at work", || async { Ok(daemon.describe(&slow).await?["state"] == "suspending") })
            .await
            .unwrap();
        for _ in 0..3 {
            daemon.get("/health").await.unwrap();
            daemon.get("/volumes").await.unwrap();
            let other = daemon.create(with("fine")).await.unwrap();
            assert_eq!(daemon.exec(&other, &["sh", "-c", "echo 1 > /data/file"]).await.unwrap().0, 0);
            daemon.act(&other, "suspend").await.unwrap();
            daemon.act(&other, "resume").await.unwrap();
            daemon.act(&other, "terminate").await.unwrap();
            assert_eq!(daemon.describe(&slow).await.unwrap()["state"], "suspending", "it is still at work");
        }
        throttle(0);
    };
    let (suspended, ()) = tokio::join!(suspending, others);
    let suspended = suspended.unwrap();
    assert!(suspended.status < 400, "{}", suspended.body);
    place.end(&[]).await;
}
