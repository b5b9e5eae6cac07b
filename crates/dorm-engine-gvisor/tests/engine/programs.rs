//! The processes of a container: what they compile, and what they may do.

use std::fs;
use std::path::Path;
use std::process::Command;

use dorm_cgroup::Cgroup;
use dorm_engine::{Engine as _, RunSpec};
use dorm_lifecycle::RunId;

use crate::host::{Place, agent_of, runsc, shell};

/// Decision 0070; stock `runsc` compiles them. The flags are those that choose a program when the
/// engine creates containers.
#[test]
fn a_sandbox_compiles_no_seccomp_program() {
    let version = Command::new(runsc()).arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("+dorm") {
        return;
    }
    let Some(place) = Place::new() else { return };
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

/// The number of dead children of this process.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let texts = stats.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let fields = |text: String| text.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned());
    texts.filter_map(fields).filter(|rest| rest.starts_with(&format!("Z {own} "))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_leaves_no_zombies() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let script = "for each in 1 2 3 4 5; do sleep 1000 >/dev/null 2>&1 </dev/null & done";
    assert_eq!(shell(&agent_of(&engine, &spec.run).await, script).await, 0);
    engine.stop(&spec.run).await.unwrap();
    assert_eq!(zombies(), 0);

    let again = RunSpec { run: RunId { generation: 2, ..spec.run.clone() }, ..spec };
    engine.start(&again).await.unwrap();
    assert_eq!(shell(&agent_of(&engine, &again.run).await, script).await, 0);
    // Its processes are dead before anybody asks which they are.
    for name in Cgroup::list(place.prefix()).unwrap() {
        Cgroup::find(&name).unwrap().unwrap().kill_all().unwrap();
    }
    engine.stop(&again.run).await.unwrap();
    assert_eq!(zombies(), 0);
}
