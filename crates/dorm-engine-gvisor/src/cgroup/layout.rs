//! The controllers that this host offers, and their directories: version 1, version 2, or some of
//! each.
//!
//! Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{CgroupError, v2};

/// The uses of a control group, each provided by one controller of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Controller {
    /// Freezes all processes at once.
    Freezer,
    /// Counts and limits memory.
    Memory,
    /// Limits CPU time.
    Cpu,
    /// Counts CPU time.
    CpuAccounting,
    /// Limits processes and threads.
    Pids,
    /// Limits and counts disk I/O.
    Io,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 6] = [Self::Freezer, Self::Memory, Self::Cpu, Self::CpuAccounting, Self::Pids, Self::Io];

    /// Returns the kernel's name of the controller.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Pids => "pids",
            // The name in version 1; for version 2 see `v2_name`.
            Self::Io => "blkio",
        }
    }

    /// Returns what does not work without the controller.
    pub fn loss(self) -> &'static str {
        match self {
            Self::Freezer => "sandboxes cannot be parked",
            Self::Memory => "memory is not limited",
            Self::Cpu => "CPU time is not limited",
            Self::CpuAccounting => "CPU time is not counted",
            Self::Pids => "host threads are not limited",
            Self::Io => "disk I/O is not limited",
        }
    }

    /// Returns whether sandboxes cannot run without the controller.
    pub fn is_needed(self) -> bool {
        matches!(self, Self::Freezer | Self::Memory)
    }

    /// Returns the word that delegates the controller in version 2; `None` for features that every
    /// group of that version has.
    pub(super) fn v2_name(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Cpu => Some("cpu"),
            Self::Pids => Some("pids"),
            Self::Io => Some("io"),
            Self::Freezer | Self::CpuAccounting => None,
        }
    }
}

/// A version of the kernel's control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A controller and the directory in which it is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) controller: Controller,
    pub(super) version: Version,
    pub(super) dir: PathBuf,
}

/// The parent directories of groups, for every available controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) bases: Vec<Place>,
}

impl Layout {
    /// Returns the layout of this host for the groups of sandboxes.
    pub(super) fn of_this_host() -> Result<Self, CgroupError> {
        Self::read(v2::base_of_sandboxes)
    }

    /// Returns the layout of this host for the group of the daemon itself.
    pub(super) fn of_the_daemon() -> Result<Self, CgroupError> {
        Self::read(v2::base)
    }

    fn read(base: fn(&Path, &Path) -> PathBuf) -> Result<Self, CgroupError> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|source| CgroupError::file("read", PathBuf::from(path), source))
        };
        Self::from_proc(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?, base)
    }

    /// Returns the layout that these texts of `/proc` describe. A controller that is mounted as
    /// version 1 is used there, since the kernel assigns it to one hierarchy only.
    /// `base` returns the parent of groups of version 2 from the mount point and the own group.
    pub(super) fn from_proc(
        mountinfo: &str,
        own: &str,
        base: fn(&Path, &Path) -> PathBuf,
    ) -> Result<Self, CgroupError> {
        let mounts = parse_mounts(mountinfo);
        let mut bases = Vec::new();
        let unified = mounts.iter().find(|mount| mount.version == Version::V2);
        let unified = match unified {
            Some(mount) => {
                let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
                let base = base(&mount.at, &relative_to_root(own, &mount.root));
                let words = v2::available(&base)?;
                Some((base, words))
            }
            None => None,
        };
        for controller in Controller::ALL {
            let first = mounts.iter().find(|mount| mount.words.iter().any(|word| word == controller.name()));
            let place = match (first, &unified) {
                (Some(mount), _) => Some((Version::V1, mount.at.clone())),
                (None, Some((base, words))) => controller
                    .v2_name()
                    .is_none_or(|name| words.iter().any(|word| word == name))
                    .then(|| (Version::V2, base.clone())),
                (None, None) => None,
            };
            bases.extend(place.map(|(version, dir)| Place { controller, version, dir }));
        }
        Ok(Self { bases })
    }

    /// Returns the version with which `controller` is available.
    pub(super) fn version(&self, controller: Controller) -> Option<Version> {
        self.bases.iter().find(|place| place.controller == controller).map(|place| place.version)
    }
}

/// The controllers that this host offers, for `dorm doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Support {
    /// Each controller with its version, or `None` if it is missing.
    pub controllers: Vec<(Controller, Option<Version>)>,
    /// Whether groups can be created, tested with an empty one.
    pub can_create: Result<(), String>,
}

impl Support {
    /// Probes this host. Creates an empty group and removes it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn probe() -> Result<Self, CgroupError> {
        let layout = Layout::of_this_host()?;
        let controllers =
            Controller::ALL.into_iter().map(|controller| (controller, layout.version(controller))).collect();
        static PROBES: AtomicU32 = AtomicU32::new(0);
        let name = format!("dormouse-probe-{}-{}", std::process::id(), PROBES.fetch_add(1, Ordering::Relaxed));
        let limits = super::Limits {
            cpu_millis: 1000,
            precedence: super::Precedence::Fair,
            memory_bytes: 64 << 20,
            threads: 64,
        };
        let can_create = super::Cgroup::create_in(&layout, &name, &limits)
            .and_then(|group| group.remove())
            .map_err(|error| error.chain());
        Ok(Self { controllers, can_create })
    }

    /// Returns whether sandboxes can run: the required controllers exist, and groups can be
    /// created.
    pub fn is_enough(&self) -> bool {
        self.can_create.is_ok() && self.missing().all(|controller| !controller.is_needed())
    }

    /// Returns the controllers that this host does not offer.
    pub fn missing(&self) -> impl Iterator<Item = Controller> {
        self.controllers.iter().filter(|(_, version)| version.is_none()).map(|(controller, _)| *controller)
    }
}

struct Mount {
    version: Version,
    root: String,
    at: PathBuf,
    words: Vec<String>,
}

fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(parse_mount).collect()
}

/// Parses `36 35 98:0 /root /mount/point rw,… optional… - type source super,options`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, at) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let words = match version {
        Version::V1 => right.nth(1)?.split(',').map(str::to_owned).collect(),
        Version::V2 => Vec::new(),
    };
    Some(Mount { version, root: unescape(root), at: PathBuf::from(unescape(at)), words })
}

/// Decodes the kernel's escapes: it writes space, tab, line feed and backslash as `\040` and the
/// like.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

/// Returns the path of our own group below the mount point, if only the part below `root` is
/// mounted.
fn relative_to_root(own: &str, root: &str) -> PathBuf {
    let own = Path::new(own);
    let below = own.strip_prefix(root).unwrap_or(own);
    if below.components().any(|part| matches!(part, std::path::Component::ParentDir)) {
        return PathBuf::from("/");
    }
    Path::new("/").join(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_version_1_uses_each_mounted_controller() {
        let mountinfo = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/my\\040memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
";
        let layout = Layout::from_proc(mountinfo, "4:memory:/\n", v2::base).unwrap();
        let dirs: Vec<_> =
            layout.bases.iter().map(|place| (place.controller.name(), place.dir.to_str().unwrap())).collect();
        assert_eq!(
            dirs,
            [
                ("freezer", "/sys/fs/cgroup/freezer"),
                ("memory", "/sys/fs/cgroup/my memory"),
                ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
                ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
            ]
        );
        assert_eq!(layout.version(Controller::Pids), None);
    }

    #[test]
    fn a_hybrid_host_takes_from_version_2_what_version_1_lacks() {
        let root = super::super::tests::scratch("hybrid");
        fs::write(root.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let mountinfo = format!(
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n",
            root.display()
        );
        let layout = Layout::from_proc(&mountinfo, "0::/\n", v2::base).unwrap();
        assert_eq!(layout.version(Controller::Memory), Some(Version::V1));
        assert_eq!(layout.version(Controller::Freezer), Some(Version::V2));
        assert_eq!(layout.version(Controller::Pids), Some(Version::V2));
    }

    #[test]
    fn the_own_group_is_found_below_a_partial_mount() {
        assert_eq!(relative_to_root("/docker/ab/x", "/docker/ab"), Path::new("/x"));
        assert_eq!(relative_to_root("/user.slice", "/"), Path::new("/user.slice"));
        assert_eq!(relative_to_root("/../other", "/"), Path::new("/"));
    }
}
