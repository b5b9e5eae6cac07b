//! The controllers that this host offers, and their directories: version 1, version 2, or some of
//! each.
//!
//! Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::v2;

/// A controller and the directory in which it is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) controller: Controller,
    pub(crate) version: Version,
    pub(crate) dir: PathBuf,
}

/// The parent directories of groups, for every available controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) bases: Vec<Place>,
}

impl Layout {
    /// Returns the layout of this host for the groups of sandboxes.
    pub(crate) fn of_this_host() -> Result<Self, CgroupError> {
        Self::read(v2::base_of_sandboxes)
    }

    /// Returns the layout of this host for the group of the daemon itself.
    pub(crate) fn of_the_daemon() -> Result<Self, CgroupError> {
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
    pub(crate) fn from_proc(
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
    pub(crate) fn version(&self, controller: Controller) -> Option<Version> {
        self.bases.iter().find(|place| place.controller == controller).map(|place| place.version)
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
        let root = crate::tests::scratch("hybrid");
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
