//! The privileges that the daemon gives up, and its end when it exceeds its memory limit.

use std::path::PathBuf;

use serde_json::json;

use crate::place::{Counter, Place};

/// A line of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn the_daemon_and_the_sandboxes_it_starts_have_few_privileges() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let sandbox = dorm_testing::sandbox_process(daemon.data(), &id).unwrap();
    // Modules, raw devices, power, time, accounting, logs, BPF and performance counters.
    let dangerous = [16, 17, 22, 25, 20, 34, 39, 38].iter().fold(0_u64, |all, bit| all | 1 << bit);
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        let held = u64::from_str_radix(&status(daemon.pid(), set), 16).unwrap();
        assert_eq!(held & dangerous, 0, "{set} {held:x}");
    }
    for pid in [daemon.pid(), sandbox] {
        assert_eq!([status(pid, "NoNewPrivs:"), status(pid, "Seccomp:")], ["1", "2"], "{pid}");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{pid}");
    }
    place.end(&[]).await;
}

/// The daemon's own control group in the memory hierarchy.
fn own_group(pid: u32) -> PathBuf {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |names: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|has| has.split(',').any(|one| one == names)))?;
        line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
    };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = |of: &str| {
        let line = mounts.lines().find(|line| match of {
            "" => line.split(' ').nth(2) == Some("cgroup2"),
            _ => line.split(' ').nth(2) == Some("cgroup") && line.split([' ', ',']).any(|word| word == of),
        })?;
        Some(PathBuf::from(line.split(' ').nth(1)?))
    };
    match (of("memory"), mount("memory")) {
        (Some(group), Some(mount)) => mount.join(group),
        _ => mount("").unwrap().join(of("").unwrap()),
    }
}

#[tokio::test]
async fn a_daemon_that_takes_too_much_memory_ends_alone() {
    let mut place = Place::with(&["--warm-containers", "0", "--daemon-memory-mib", "256"]);
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let pid = place.daemon().pid();
    let group = own_group(pid);
    assert!(group.ends_with(group.file_name().unwrap()) && group.to_string_lossy().ends_with("-daemon"), "{group:?}");
    // Another process in the group uses up the memory limit; the kernel must choose the daemon as
    // the OOM victim.
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
    let mut hog = std::process::Command::new("python3")
        .args(["-c", "import sys; sys.stdin.readline(); hog = b'x' * (512 << 20); sys.stdin.readline()"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::write(group.join("cgroup.procs"), hog.id().to_string()).unwrap();
    std::io::Write::write_all(hog.stdin.as_mut().unwrap(), b"now\n").unwrap();
    let status = place.daemon_mut().wait().unwrap();
    let _ = hog.kill();
    hog.wait().unwrap();
    assert_eq!(status, None, "it was killed");
    place.daemon_mut().start_again().unwrap();
    counter.is_whole(place.daemon()).await;
    let again = own_group(place.daemon().pid());
    assert_eq!(again, group, "the same group");
    place.end(&[]).await;
    assert!(!group.exists(), "the group of a daemon that has stopped");
}

/// Hides the host's loop devices from the daemon that this process becomes.
#[allow(unsafe_code)]
fn hide_loop_devices(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;

    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: only system calls are made between fork and exec, and the process has one thread.
    unsafe {
        command.pre_exec(|| {
            unshare_unsafe(UnshareFlags::NEWNS)?;
            mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
            Ok(mount_bind(c"/dev/null", c"/dev/loop-control")?)
        });
    }
}

#[tokio::test]
async fn a_host_without_loop_devices_is_refused_unless_told_otherwise() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let daemon = place.daemon();
    let again = |options: &[&str]| {
        let log = place.directory().join("log-without-loops");
        let started = dorm_testing::Daemon::start_prepared(
            daemon.program(),
            daemon.data(),
            daemon.images(),
            &log,
            options,
            hide_loop_devices,
        );
        started.map_err(|error| error.to_string())
    };
    let refused = again(&["--warm-containers", "0"]).unwrap_err();
    assert!(
        refused.contains("cannot limit the size of sandbox disks") && refused.contains("--allow-unlimited-disks"),
        "{refused}"
    );
    let allowed = again(&["--warm-containers", "0", "--allow-unlimited-disks"]).unwrap();
    let id = allowed.create(json!({ "image": "base" })).await.unwrap();
    assert!(allowed.log().contains("the disk of a sandbox has no size limit on this host"), "{}", allowed.log());
    allowed.act(&id, "terminate").await.unwrap();
    drop(allowed);
    place.daemon_mut().start_again().unwrap();
    place.end(&[]).await;
}
