//! Control groups on this real host. Tests that the host cannot run are skipped loudly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dorm_cgroup::{Cgroup, CgroupError, Limits, Precedence, Support, Threshold};

const MIB: u64 = 1 << 20;
const LIMITS: Limits = Limits { cpu_millis: 1000, precedence: Precedence::Fair, memory_bytes: 64 * MIB, threads: 50 };
/// The soft threshold in these tests.
const LEVEL: u64 = 32 * MIB;

/// A group that is removed with everything in it, even if the test fails.
struct Group {
    group: Cgroup,
    parent: String,
}

impl Group {
    fn new(limits: &Limits) -> Option<Self> {
        let support = Support::probe().unwrap();
        if !support.is_enough() {
            dorm_skip::skip(format!("this host has no usable control groups: {support:?}"));
            return None;
        }
        let parent = unique();
        let group = Cgroup::create(&format!("{parent}/ID-1"), limits).unwrap();
        Some(Self { group, parent })
    }

    /// Starts a child in the group.
    fn spawn(&self, command: &mut Command) -> Child {
        let entry = self.group.entry().unwrap();
        // SAFETY: `enter` only writes to descriptors that are open.
        #[allow(unsafe_code)]
        let command = unsafe { command.pre_exec(move || entry.enter()) };
        command.spawn().unwrap()
    }

    fn shell(&self, script: &str) -> Child {
        self.spawn(Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.group.kill_all();
        let _ = self.group.remove();
        let _ = Cgroup::remove_parent(&self.parent);
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("dormouse-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_child_is_in_the_group_before_its_program_starts() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut child = group.shell("exec sleep 600");
    assert_eq!(group.group.pids().unwrap(), [child.id()]);
    assert_eq!(group.group.usage().unwrap().processes, 1);
    group.group.kill_all().unwrap();
    child.wait().unwrap();
    group.group.remove().unwrap();
}

#[test]
fn a_group_that_is_removed_meanwhile_has_nothing_to_kill() {
    for _ in 0..200 {
        let Some(group) = Group::new(&LIMITS) else { return };
        std::thread::scope(|scope| {
            let killing = scope.spawn(|| group.group.kill_all());
            group.group.remove().unwrap();
            killing.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_running_process_can_be_added() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    group.group.add(child.id()).unwrap();
    assert_eq!(group.group.pids().unwrap(), [child.id()]);
    group.group.kill_all().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_frozen_group_uses_no_cpu_and_continues_after_a_thaw() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut child = group.shell("while :; do :; done");
    let cpu = || group.group.usage().unwrap().cpu_micros.unwrap();
    wait_for("it burns CPU", || cpu() > 20_000);
    group.group.freeze().unwrap();
    group.group.freeze().unwrap();
    assert!(group.group.is_frozen().unwrap());
    let before = cpu();
    std::thread::sleep(Duration::from_millis(100));
    // CPU time from just before it was frozen may be counted late.
    assert!(cpu() - before < 20_000, "{} µs used while frozen", cpu() - before);
    group.group.thaw().unwrap();
    group.group.thaw().unwrap();
    assert!(!group.group.is_frozen().unwrap());
    wait_for("it burns CPU again", || cpu() > before);
    group.group.kill_all().unwrap();
    child.wait().unwrap();
}

#[test]
fn freezing_holds_against_a_storm_of_forks() {
    let Some(group) = Group::new(&Limits { threads: 200, ..LIMITS }) else { return };
    let mut child = group.shell("for i in 1 2 3 4 5 6; do (while :; do /bin/true; done) & done; wait");
    wait_for("the storm", || group.group.pids().unwrap().len() > 6);
    for _ in 0..10 {
        group.group.freeze().unwrap();
        let pids = group.group.pids().unwrap();
        assert_eq!(group.group.pids().unwrap(), pids);
        group.group.thaw().unwrap();
    }
    group.group.kill_all().unwrap();
    child.wait().unwrap();
    group.group.remove().unwrap();
}

#[test]
fn a_frozen_group_can_be_killed() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut child = group.shell("sleep 600 & sleep 600 & wait");
    wait_for("three processes", || group.group.pids().unwrap().len() == 3);
    group.group.freeze().unwrap();
    group.group.kill_all().unwrap();
    group.group.kill_all().unwrap();
    child.wait().unwrap();
    group.group.remove().unwrap();
    group.group.remove().unwrap();
    group.group.kill_all().unwrap();
    assert!(group.group.pids().unwrap().is_empty());
}

#[test]
fn a_group_is_found_by_name_alone() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let found = Cgroup::find(group.group.name()).unwrap().unwrap();
    assert_eq!(found, group.group);
    assert_eq!(Cgroup::list(&group.parent).unwrap(), [group.group.name()]);
    assert!(!Cgroup::remove_parent(&group.parent).unwrap(), "it is in use");
    group.group.remove().unwrap();
    assert_eq!(Cgroup::find(group.group.name()).unwrap(), None);
    assert!(Cgroup::remove_parent(&group.parent).unwrap());
    assert!(Cgroup::list(&group.parent).unwrap().is_empty());
}

#[test]
fn an_empty_group_left_by_a_crash_is_replaced_and_one_in_use_is_refused() {
    let Some(group) = Group::new(&LIMITS) else { return };
    Cgroup::create(group.group.name(), &LIMITS).unwrap();
    let mut child = group.shell("exec sleep 600");
    let refused = Cgroup::create(group.group.name(), &LIMITS).unwrap_err();
    assert!(matches!(refused, CgroupError::Occupied { .. }), "{refused}");
    assert_eq!(group.group.pids().unwrap(), [child.id()]);
    group.group.kill_all().unwrap();
    child.wait().unwrap();
}

#[test]
fn limits_can_be_raised_and_lowered() {
    let Some(group) = Group::new(&LIMITS) else { return };
    for memory_bytes in [256 * MIB, 32 * MIB, 128 * MIB] {
        group.group.set_limits(&Limits { memory_bytes, ..LIMITS }).unwrap();
        assert_eq!(group.group.memory_limit().unwrap(), memory_bytes);
    }
}

#[test]
fn more_threads_than_the_limit_are_refused() {
    let Some(group) = Group::new(&Limits { threads: 3, ..LIMITS }) else { return };
    let mut child = group.shell("sleep 600 & sleep 600 & sleep 600 & wait");
    // The shell exits when it cannot fork.
    let status = child.wait().unwrap();
    assert!(!status.success());
    assert_eq!(group.group.pids().unwrap().len(), 2);
}

#[test]
fn the_hard_limit_kills_and_is_counted() {
    let Some(group) = Group::new(&LIMITS) else { return };
    assert_eq!(group.group.oom_kills().unwrap(), 0);
    let mut child = group.spawn(Command::new("tail").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
    let mut input = child.stdin.take().unwrap();
    let block = vec![b'x'; MIB as usize];
    // Without line ends `tail` keeps all its input.
    let died = (0..256).find(|_| input.write_all(&block).is_err());
    assert!(died.is_some(), "it ate 256 MiB with a limit of 64");
    child.wait().unwrap();
    wait_for("the kill is counted", || group.group.oom_kills().unwrap() >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortage_is_told_before_the_limit_kills() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut threshold = Threshold::arm(&group.group, LEVEL).unwrap();
    for round in 0..2 {
        let mut child =
            group.spawn(Command::new("tail").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
        let input = child.stdin.take().unwrap();
        let (used, fed) = eat_until_told(&mut threshold, input).await;
        assert!(used >= LEVEL - LEVEL / 16, "{used}");
        assert!(fed < LIMITS.memory_bytes, "told after {fed} bytes");
        assert_eq!(group.group.oom_kills().unwrap(), 0, "round {round}");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("its memory is given back", || group.group.usage().unwrap().memory_bytes < LEVEL / 2);
    }
    group.group.remove().unwrap();
    let gone = tokio::time::timeout(Duration::from_secs(60), threshold.reached()).await.expect("it ends");
    assert!(gone.unwrap_err().is_gone());
}

/// Feeds `input` in small steps until the threshold is reported. Returns the usage that it reported
/// and the number of bytes fed. Far past the level it feeds so slowly that the limit is only
/// reached if the threshold is never reported.
async fn eat_until_told(threshold: &mut Threshold, mut input: std::process::ChildStdin) -> (u64, u64) {
    let mut fed = 0;
    let block = vec![b'x'; 256 << 10];
    let told = threshold.reached();
    tokio::pin!(told);
    loop {
        input.write_all(&block).unwrap();
        fed += block.len() as u64;
        let pause = Duration::from_millis(if fed < LEVEL + 4 * MIB { 1 } else { 500 });
        tokio::select! {
            told = &mut told => return (told.unwrap(), fed),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_files_is_not_a_shortage() {
    let Some(group) = Group::new(&LIMITS) else { return };
    let mut threshold = Threshold::arm(&group.group, LEVEL).unwrap();
    // The system's directory for temporary files may be in memory.
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique());
    let script = format!("dd if=/dev/zero of={0} bs=1M count=300 2>/dev/null; rm -f {0}", file.display());
    let mut child = group.shell(&script);
    let writing = tokio::task::spawn_blocking(move || child.wait().unwrap());
    tokio::select! {
        told = threshold.reached() => panic!("told of {told:?}"),
        status = writing => assert!(status.unwrap().success()),
    }
    assert_eq!(group.group.oom_kills().unwrap(), 0);
    let mut eater = group.spawn(Command::new("tail").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
    let (used, _) = eat_until_told(&mut threshold, eater.stdin.take().unwrap()).await;
    assert!(used >= LEVEL - LEVEL / 16, "a real shortage after it is told");
    eater.kill().unwrap();
    eater.wait().unwrap();
}
