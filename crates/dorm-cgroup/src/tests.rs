//! Tests version 2 on a simulated tree of files, and the code that both versions share.
//! `tests/limits.rs` tests version 1 on the real kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::controller::Controller;
use crate::error::CgroupError;
use crate::group::{Cgroup, ask_freezer, check_name, motion, remove_dir};
use crate::layout::Layout;
use crate::speed::{Device, IoLimits, IoUsage};
use crate::support::Support;
use crate::threshold::Threshold;
use crate::values::{GroupUsage, Limits, Motion, Precedence};
use crate::{file, v2};

const LIMITS: Limits = Limits { cpu_millis: 1500, precedence: Precedence::Fair, memory_bytes: 128 << 20, threads: 264 };

/// A new empty directory, removed at the end even if the test fails.
pub(crate) struct Scratch(PathBuf);

pub(crate) fn scratch(topic: &str) -> Scratch {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("dorm-{topic}-{}-{count}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    Scratch(dir)
}

impl std::ops::Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tree with the files that the kernel would create, for the group `dormouse/a` and its parents.
struct Tree {
    root: Scratch,
    layout: Layout,
}

impl Tree {
    fn new(topic: &str) -> Self {
        let root = scratch(topic);
        for dir in ["", "dormouse", "dormouse/a"] {
            let dir = root.join(dir);
            fs::create_dir_all(&dir).unwrap();
            for (name, text) in FILES {
                fs::write(dir.join(name), text).unwrap();
            }
        }
        let mountinfo = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", root.display());
        let layout = Layout::from_proc(&mountinfo, "0::/\n", v2::base).unwrap();
        Self { root, layout }
    }

    fn leaf(&self) -> PathBuf {
        self.root.join("dormouse/a")
    }
}

const FILES: [(&str, &str); 16] = [
    ("cgroup.controllers", "cpuset cpu io memory pids\n"),
    ("cgroup.subtree_control", ""),
    ("cgroup.procs", ""),
    ("cgroup.freeze", "0\n"),
    ("cgroup.events", "populated 0\nfrozen 0\n"),
    ("cgroup.kill", ""),
    ("cpu.max", "max 100000\n"),
    ("cpu.weight", "100\n"),
    ("cpu.stat", "usage_usec 1234\nuser_usec 1000\n"),
    ("memory.max", "max\n"),
    ("memory.current", "50000000\n"),
    ("memory.stat", "anon 1\nfile 9\ninactive_file 6000000\nactive_file 4000000\n"),
    ("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n"),
    ("pids.max", "max\n"),
    ("io.max", ""),
    ("io.stat", "7:3 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:31 rbytes=9 wbytes=9 rios=1 wios=1\n"),
];

fn text(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn version_2_hands_controllers_down_and_sets_limits() {
    let tree = Tree::new("limits");
    let group = Cgroup::create_in(&tree.layout, "dormouse/a", &LIMITS).unwrap();
    for dir in [tree.root.to_path_buf(), tree.root.join("dormouse")] {
        assert_eq!(text(&dir, "cgroup.subtree_control"), "+io", "the last of four words written");
    }
    assert_eq!(text(&tree.leaf(), "cgroup.subtree_control"), "", "nothing is handed down from the group itself");
    assert_eq!(text(&tree.leaf(), "cpu.max"), "150000 100000");
    assert_eq!(text(&tree.leaf(), "cpu.weight"), "150");
    assert_eq!(text(&tree.leaf(), "memory.max"), (128 << 20).to_string());
    assert_eq!(text(&tree.leaf(), "pids.max"), "264");
    assert_eq!(group.memory_limit().unwrap(), 128 << 20);
}

#[test]
fn version_2_limits_and_counts_one_disk() {
    let tree = Tree::new("io");
    let group = Cgroup::find_in(&tree.layout, "dormouse/a").unwrap().unwrap();
    let disk = Device { major: 7, minor: 3 };
    let limits = IoLimits { read_bytes: 1000, write_bytes: 0, operations: 10 };
    assert!(group.limit_io(disk, &limits).unwrap());
    assert_eq!(text(&tree.leaf(), "io.max"), "7:3 rbps=1000 wbps=max riops=10 wiops=10");
    assert!(group.limit_io(disk, &IoLimits::NONE).unwrap());
    assert_eq!(text(&tree.leaf(), "io.max"), "7:3 rbps=max wbps=max riops=max wiops=max");
    assert_eq!(group.io_usage(disk).unwrap(), Some(IoUsage { read_bytes: 4096, written_bytes: 8192 }));
    let other = Device { major: 7, minor: 4 };
    assert_eq!(group.io_usage(other).unwrap(), Some(IoUsage::default()));
}

#[test]
fn version_2_tells_what_a_group_uses() {
    let tree = Tree::new("usage");
    let group = Cgroup::find_in(&tree.layout, "dormouse/a").unwrap().unwrap();
    fs::write(tree.leaf().join("cgroup.procs"), "0\n4000001\n4000002\n").unwrap();
    let usage = group.usage().unwrap();
    assert_eq!(
        usage,
        GroupUsage { cpu_micros: Some(1234), memory_bytes: 40_000_000, cache_bytes: 10_000_000, processes: 2 }
    );
    assert_eq!(group.oom_kills().unwrap(), 2);
    assert_eq!(group.pids().unwrap(), [4_000_001, 4_000_002]);
}

#[test]
fn version_2_is_frozen_only_when_the_kernel_says_so() {
    let tree = Tree::new("freeze");
    let group = Cgroup::find_in(&tree.layout, "dormouse/a").unwrap().unwrap();
    let place = group.place(Controller::Freezer).unwrap();
    ask_freezer(place, Motion::Frozen).unwrap();
    assert_eq!(motion(place).unwrap(), None, "asked, not yet done");
    fs::write(tree.leaf().join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    group.freeze().unwrap();
    assert!(group.is_frozen().unwrap());
    fs::write(tree.leaf().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    group.thaw().unwrap();
    assert!(!group.is_frozen().unwrap());
}

#[test]
fn version_2_kills_with_one_word() {
    let tree = Tree::new("kill");
    let group = Cgroup::find_in(&tree.layout, "dormouse/a").unwrap().unwrap();
    group.kill_all().unwrap();
    assert_eq!(text(&tree.leaf(), "cgroup.kill"), "1");
}

#[test]
fn a_group_with_processes_is_not_taken_over() {
    let tree = Tree::new("occupied");
    fs::write(tree.leaf().join("cgroup.procs"), "4000001\n").unwrap();
    let refused = Cgroup::create_in(&tree.layout, "dormouse/a", &LIMITS).unwrap_err();
    assert!(matches!(refused, CgroupError::Occupied { .. }), "{refused}");
    assert_eq!(text(&tree.leaf(), "memory.max"), "max\n", "nothing changed");
}

#[test]
fn a_host_without_memory_controller_is_refused_by_name() {
    let tree = Tree::new("missing");
    fs::write(tree.root.join("cgroup.controllers"), "cpu pids\n").unwrap();
    let mountinfo = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", tree.root.display());
    let layout = Layout::from_proc(&mountinfo, "0::/\n", v2::base).unwrap();
    let refused = Cgroup::create_in(&layout, "dormouse/a", &LIMITS).unwrap_err();
    assert!(matches!(refused, CgroupError::Missing { controller: Controller::Memory }), "{refused}");
}

#[test]
fn a_host_that_only_lacks_limits_is_used_without_them() {
    let tree = Tree::new("tolerated");
    fs::write(tree.root.join("cgroup.controllers"), "memory\n").unwrap();
    let mountinfo = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", tree.root.display());
    let layout = Layout::from_proc(&mountinfo, "0::/\n", v2::base).unwrap();
    Cgroup::create_in(&layout, "dormouse/a", &LIMITS).unwrap();
    assert_eq!(text(&tree.leaf(), "cpu.max"), "max 100000\n");
    assert_eq!(text(&tree.leaf(), "pids.max"), "max\n");
}

#[tokio::test]
async fn version_2_reports_a_shortage_once_per_rise() {
    let tree = Tree::new("threshold");
    let group = Cgroup::create_in(&tree.layout, "dormouse/a", &LIMITS).unwrap();
    fs::write(tree.leaf().join("memory.high"), "max\n").unwrap();
    let mut threshold = Threshold::arm(&group, 100 << 20).unwrap();
    assert_eq!(text(&tree.leaf(), "memory.high"), (100 << 20).to_string());
    let rise = |used: u64| {
        fs::write(tree.leaf().join("memory.current"), used.to_string()).unwrap();
        fs::write(tree.leaf().join("memory.events"), "high 1\noom_kill 0\n").unwrap();
    };
    let (used, ()) = tokio::join!(threshold.reached(), async {
        tokio::task::yield_now().await;
        rise(105 << 20);
    });
    assert_eq!(used.unwrap(), (105 << 20) - 10_000_000);
    rise(50 << 20);
    let fallen = tokio::time::timeout(Duration::from_millis(1), threshold.reached()).await;
    assert!(fallen.is_err(), "it has fallen, nothing to tell");
    rise(106 << 20);
    assert_eq!(threshold.reached().await.unwrap(), (106 << 20) - 10_000_000);
    fs::remove_file(tree.leaf().join("memory.stat")).unwrap();
    rise(107 << 20);
    assert!(threshold.reached().await.unwrap_err().is_gone());
}

#[test]
fn a_name_cannot_lead_out_of_the_hierarchy() {
    for bad in ["", "/", "a//b", "../a", "a/..", "a b", "/a", "a/", ".hidden"] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
    check_name("dormouse-ab12/abc-1").unwrap();
}

/// A child in a group with the freezer of version 2, on a host with the other controllers in
/// version 1: the real kernel. `None` on other hosts.
struct Hybrid {
    layout: Layout,
    parent: String,
    group: Cgroup,
    child: std::process::Child,
}

impl Hybrid {
    fn new() -> Option<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mountinfo: String =
            mountinfo.lines().filter(|line| !line.ends_with("freezer")).flat_map(|line| [line, "\n"]).collect();
        let layout = Layout::from_proc(&mountinfo, "0::/\n", v2::base).unwrap();
        if layout.version(Controller::Freezer).is_none() || !Support::probe().unwrap().is_enough() {
            dorm_skip::skip("this host has no hierarchy of version 2 that can be used");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = format!("dormouse-hybrid-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let group = Cgroup::create_in(&layout, &format!("{parent}/a"), &LIMITS).unwrap();
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let made = Self { layout, parent, group, child };
        made.group.add(made.child.id()).unwrap();
        Some(made)
    }

    fn unified(&self) -> PathBuf {
        self.group.place(Controller::Freezer).unwrap().dir.clone()
    }
}

impl Drop for Hybrid {
    fn drop(&mut self) {
        let _ = self.group.thaw();
        let _ = self.child.kill();
        let _ = self.child.wait();
        while matches!(remove_dir(&self.unified().join(v2::ASIDE)), Ok(false)) {}
        let _ = self.group.remove();
        let _ = Cgroup::named(&self.layout, &self.parent).remove();
    }
}

#[test]
fn version_2_freezes_and_kills_for_real() {
    let Some(mut hybrid) = Hybrid::new() else { return };
    let group = &hybrid.group;
    group.freeze().unwrap();
    assert!(group.is_frozen().unwrap());
    assert_eq!(group.pids().unwrap(), [hybrid.child.id()]);
    group.thaw().unwrap();
    assert!(!group.is_frozen().unwrap());
    group.freeze().unwrap();
    group.kill_all().unwrap();
    hybrid.child.wait().unwrap();
    group.remove().unwrap();
}

#[test]
fn a_group_that_must_hand_controllers_down_is_emptied_first() {
    let Some(hybrid) = Hybrid::new() else { return };
    let dir = hybrid.unified();
    v2::step_aside(&dir).unwrap();
    assert!(file::pids(&dir).unwrap().is_empty());
    assert_eq!(file::pids(&dir.join(v2::ASIDE)).unwrap(), [hybrid.child.id()]);
}

#[test]
fn groups_of_sandboxes_are_in_the_unit_beside_that_of_the_daemon() {
    let mount = scratch("units");
    let slice = mount.join("system.slice");
    let (own, sandboxes) = (slice.join("dormouse.service"), slice.join("dormouse-sandboxes.service"));
    fs::create_dir_all(own.join("dormouse-ab-daemon")).unwrap();
    let delegate = |dir: &Path| rustix::fs::setxattr(dir, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
    if let Err(error) = delegate(&own) {
        dorm_skip::skip(format!("no extended attributes in {}: {error}", mount.display()));
        return;
    }
    let within = Path::new("/system.slice/dormouse.service/dormouse-ab-daemon");
    assert_eq!(v2::base_of_sandboxes(&mount, within), own, "there is no other unit");
    fs::create_dir(&sandboxes).unwrap();
    assert_eq!(v2::base_of_sandboxes(&mount, within), own, "nobody has delegated it");
    delegate(&sandboxes).unwrap();
    assert_eq!(v2::base_of_sandboxes(&mount, within), sandboxes);
    assert_eq!(v2::base(&mount, within), own, "the daemon itself stays in its unit");
    assert_eq!(v2::base_of_sandboxes(&mount, Path::new("/user.slice")), *mount);
}
