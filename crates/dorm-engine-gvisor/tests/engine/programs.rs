//! The processes of a container: what they compile, and what they may do.

use std::fs;
use std::path::Path;
use std::process::Command;

use dorm_engine::Engine as _;

use crate::host::{Place, runsc};

/// Decision 0070; stock `runsc` compiles them. The flags are those that choose a program when the
/// engine creates containers.
#[test]
fn a_sandbox_compiles_no_seccomp_program() {
    let version = Command::new(runsc()).arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("+dorm") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let output = Command::new(runsc())
        .arg(format!("--root={}", place.path().join("state").display()))
        .args(["--platform=systrap", "--ignore-cgroups", "--network=none", "--debug"])
        .arg(format!("--debug-log={}/", log.display()))
        .args(["do", "/bin/true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let logs = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let text: String = logs.map(|log| String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned()).collect();
    for expected in ["Loaded precompiled seccomp instructions", "Loaded the generated seccomp program"] {
        assert!(text.contains(expected), "no process says '{expected}'");
    }
    assert!(!text.contains("building seccomp program from scratch"));
}

/// `CAP_SYS_MODULE`, `CAP_SYS_BOOT` and `CAP_SYSLOG`, which the processes of a container have at
/// first, with all others, and neither need nor give to the guest.
const UNNEEDED: u64 = 1 << 16 | 1 << 22 | 1 << 34;

/// The capabilities that each thread of a process may use or make usable.
fn capabilities(process: &Path) -> Vec<u64> {
    let statuses = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let texts = statuses.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let value = |line: &str| {
        let names = ["CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"];
        names.iter().find_map(|name| line.strip_prefix(name)).map(|hex| u64::from_str_radix(hex, 16).unwrap())
    };
    texts.map(|text| text.lines().filter_map(value).fold(0, |all, bits| all | bits)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_thread_of_a_running_sandbox_keeps_unneeded_capabilities() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let group = |path: &Path| fs::read_to_string(path.join("cgroup")).unwrap_or_default();
    let all: Vec<Vec<u64>> =
        processes.filter(|path| group(path).contains(place.prefix())).map(|path| capabilities(&path)).collect();
    engine.stop(&spec.run).await.unwrap();
    // A sentry and a gofer at least.
    assert!(all.len() >= 2, "{all:x?}");
    assert!(all.iter().flatten().all(|bits| bits & UNNEEDED == 0), "{all:x?}");
}
