//! The files of cgroup version 2, which has one hierarchy in which controllers are delegated level
//! by level.
//!
//! This module knows what to write where. It does not know when to write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::controller::Controller;
use crate::error::CgroupError;
use crate::file;
use crate::values::{CPU_PERIOD_MICROS, MemoryUse, Motion};

/// The group that this process moves to when the group it was started in must become an inner one.
pub(crate) const ASIDE: &str = "dormouse-self";
const ROUNDS: u32 = 10;

/// Returns the group below which all others are created: the nearest ancestor of `own` that the
/// service manager has delegated, otherwise the root. It must be the same after a restart of the
/// daemon; `own` is not.
pub(crate) fn base(mount: &Path, own: &Path) -> PathBuf {
    let start = mount.join(own.strip_prefix("/").unwrap_or(own));
    for dir in start.ancestors().take_while(|dir| dir.starts_with(mount) && *dir != mount) {
        if is_delegated(dir) {
            return dir.to_owned();
        }
    }
    mount.to_owned()
}

/// Returns the group below which those of sandboxes are created: that of the delegated unit beside
/// the daemon's own, whose name is `UNIT-sandboxes.service`, if there is one; otherwise [`base`].
///
/// A unit whose group has child groups with controllers cannot be started: the kernel accepts no
/// process in it. So the groups of sandboxes, which outlive the daemon, must not be in its unit,
/// unless systemd starts it in a group of its own there (`DelegateSubgroup=`, since systemd 254).
pub(crate) fn base_of_sandboxes(mount: &Path, own: &Path) -> PathBuf {
    let base = base(mount, own);
    let unit = base.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".service"));
    let beside = unit.map(|unit| base.with_file_name(format!("{unit}-sandboxes.service")));
    beside.filter(|dir| is_delegated(dir)).unwrap_or(base)
}

fn is_delegated(dir: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| has_xattr(dir, name))
}

fn has_xattr(dir: &Path, name: &str) -> bool {
    let mut value = [0_u8; 8];
    rustix::fs::getxattr(dir, name, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"1"))
}

/// Returns the controllers that `dir` can delegate, by the kernel's names.
pub(crate) fn available(dir: &Path) -> Result<Vec<String>, CgroupError> {
    Ok(file::read(dir, "cgroup.controllers")?.split_whitespace().map(str::to_owned).collect())
}

/// Delegates `controllers` from `base` to the parent of the group `name`, and creates the groups
/// between them. A controller that the kernel refuses is skipped if it is optional; its files are
/// then missing.
pub(crate) fn hand_down(base: &Path, name: &str, controllers: &[Controller]) -> Result<(), CgroupError> {
    let mut dir = base.to_owned();
    let mut inner: Vec<&str> = name.split('/').collect();
    inner.pop();
    enable(&dir, controllers)?;
    for part in inner {
        dir.push(part);
        make(&dir)?;
        enable(&dir, controllers)?;
    }
    Ok(())
}

fn make(dir: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(dir) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError::file("create", dir.to_owned(), source))
        }
        _ => Ok(()),
    }
}

fn enable(dir: &Path, controllers: &[Controller]) -> Result<(), CgroupError> {
    const FILE: &str = "cgroup.subtree_control";
    let enabled = file::read(dir, FILE)?;
    for controller in controllers {
        let Some(word) = controller.v2_name() else { continue };
        if enabled.split_whitespace().any(|there| there == word) {
            continue;
        }
        let mut done = file::write(dir, FILE, &format!("+{word}"));
        if done.as_ref().is_err_and(|error| error.io_kind() == Some(io::ErrorKind::ResourceBusy)) {
            step_aside(dir)?;
            done = file::write(dir, FILE, &format!("+{word}"));
        }
        match done {
            Err(error) if controller.is_needed() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Moves all processes in `dir` (the daemon and everything started with it) into a group beside
/// ours. A group that delegates controllers may not contain processes.
pub(crate) fn step_aside(dir: &Path) -> Result<(), CgroupError> {
    let aside = dir.join(ASIDE);
    make(&aside)?;
    // The next round catches processes that fork meanwhile.
    for _ in 0..ROUNDS {
        let pids = file::pids(dir)?;
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            match file::write(&aside, "cgroup.procs", &pid.to_string()) {
                Err(error) if !error.is_no_such_process() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Limits the CPU time per period, and sets the weight relative to other runnable groups.
pub(crate) fn limit_cpu(dir: &Path, cpu_millis: u32, weight_millis: u32) -> Result<(), CgroupError> {
    let quota = u64::from(cpu_millis) * CPU_PERIOD_MICROS / 1000;
    file::write(dir, "cpu.max", &format!("{quota} {CPU_PERIOD_MICROS}"))?;
    let weight = (u64::from(weight_millis) / 10).clamp(1, 10_000);
    file::write_if_there(dir, "cpu.weight", &weight.to_string()).map(drop)
}

/// Limits memory, and swap to the same value, so that a guest can be swapped out completely but
/// cannot fill the host's swap.
pub(crate) fn limit_memory(dir: &Path, bytes: u64) -> Result<(), CgroupError> {
    file::write(dir, "memory.max", &bytes.to_string())?;
    file::write_if_there(dir, "memory.swap.max", &bytes.to_string())?;
    // A sandbox cannot continue with one of its processes killed. This way the engine sees one
    // death instead of several.
    file::write_if_there(dir, "memory.oom.group", "1").map(drop)
}

/// Returns the hard memory limit, or the maximum value if there is none.
pub(crate) fn memory_limit(dir: &Path) -> Result<u64, CgroupError> {
    match file::read(dir, "memory.max")?.trim() {
        "max" => Ok(u64::MAX),
        _ => file::number(dir, "memory.max"),
    }
}

/// Asks the kernel to freeze or thaw the group.
pub(crate) fn ask_freezer(dir: &Path, wanted: Motion) -> Result<(), CgroupError> {
    let digit = match wanted {
        Motion::Frozen => "1",
        Motion::Moving => "0",
    };
    file::write(dir, "cgroup.freeze", digit)
}

/// Returns whether every process is frozen, or `None` while only some are.
pub(crate) fn motion(dir: &Path) -> Result<Option<Motion>, CgroupError> {
    if file::field(dir, "cgroup.events", "frozen")? == 1 {
        return Ok(Some(Motion::Frozen));
    }
    Ok((file::number(dir, "cgroup.freeze")? == 0).then_some(Motion::Moving))
}

/// Returns the CPU time used, in microseconds.
pub(crate) fn cpu_micros(dir: &Path) -> Result<u64, CgroupError> {
    file::field(dir, "cpu.stat", "usage_usec")
}

/// Returns the memory in use, and how much of it is file cache.
pub(crate) fn memory(dir: &Path) -> Result<MemoryUse, CgroupError> {
    let stat = file::read(dir, "memory.stat")?;
    let charged = file::number(dir, "memory.current")?;
    let part = |key| file::find(&stat, key).unwrap_or(0);
    Ok(MemoryUse { charged, cache: part("inactive_file") + part("active_file") })
}

/// Returns the number of processes killed because memory ran out.
pub(crate) fn oom_kills(dir: &Path) -> Result<u64, CgroupError> {
    file::field(dir, "memory.events", "oom_kill")
}

/// Kills every process at once. Returns `false` on kernels before 5.14, which do not support it.
pub(crate) fn kill(dir: &Path) -> Result<bool, CgroupError> {
    file::write_if_there(dir, "cgroup.kill", "1")
}
