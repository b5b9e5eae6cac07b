//! The file system of the data directory: free space, and whether files can share blocks.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

use super::Check;
use crate::cli::shown;
use crate::identity::IdentityError;

/// With less free space than this, sandboxes will soon be refused.
const ROOM_LEAST: u64 = 2 << 30;
/// With less free space than this, it will not last long.
const ROOM_GOOD: u64 = 20 << 30;

pub(super) fn checks(data: &Path) -> Vec<Check> {
    let there = existing(data);
    vec![room(data, &there), way(data, &there), executable(&there), reflink(&there), identity(data)]
}

/// Returns the directory itself, or the nearest existing one above it.
fn existing(data: &Path) -> PathBuf {
    let whole = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    whole.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn room(data: &Path, there: &Path) -> Check {
    const NAME: &str = "disk space";
    let next = "free some space, or choose another directory with --data";
    match rustix::fs::statvfs(there) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let text = format!("{} free for {}", shown::size(free), data.display());
            match free {
                0..ROOM_LEAST => Check::fail(NAME, text, next),
                ROOM_LEAST..ROOM_GOOD => {
                    Check::warn(NAME, text, "watch it: a sleep image is as large as the memory in use")
                }
                _ => Check::ok(NAME, text),
            }
        }
        Err(error) => Check::fail(NAME, format!("cannot get the free space of {}: {error}", there.display()), next),
    }
}

/// Checks whether user ids of sandboxes can reach the data directory.
fn way(data: &Path, there: &Path) -> Check {
    const NAME: &str = "data path";
    let whole = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    // The daemon creates missing directories; what exists may itself be above the data directory.
    let ids = if there == whole { crate::guest_ids::recorded(data).ok() } else { None };
    let below = if there == whole { whole } else { there.join("data") };
    let closed = dorm_storage::closed_to_guests(&below, ids.unwrap_or(dorm_guest_ids::GuestIds::DEFAULT));
    match closed {
        None => Check::ok(NAME, format!("sandboxes can reach {}", data.display())),
        Some(closed) => {
            let found = format!("user ids of sandboxes cannot pass through {} to {}", closed.display(), data.display());
            let next = format!("chmod o+x {}, or choose another directory with --data", closed.display());
            Check::fail(NAME, found, next)
        }
    }
}

/// Checks whether memory that comes from a file there may be executed.
fn executable(there: &Path) -> Check {
    const NAME: &str = "data mount";
    match rustix::fs::statvfs(there) {
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::NOEXEC) => {
            let text = format!("{} is mounted with noexec", there.display());
            let next = "remount it without noexec: a runsc that maps memory images from there cannot execute the code in \
                        them, and programs that make code at run time fail";
            Check::warn(NAME, text, next)
        }
        Ok(_) => Check::ok(NAME, format!("memory images in {} can be mapped", there.display())),
        Err(error) => {
            let text = format!("cannot get the mount options of {}: {error}", there.display());
            Check::warn(NAME, text, "make the directory readable for this user, or choose another one with --data")
        }
    }
}

fn identity(data: &Path) -> Check {
    const NAME: &str = "data directory";
    match crate::identity::look(data) {
        Ok(Some(id)) => Check::ok(NAME, format!("{} has the id {id}", data.display())),
        Ok(None) => Check::ok(NAME, format!("{} has no id yet", data.display())),
        Err(error) => {
            let next = identity_next_step(&error);
            Check::fail(NAME, format!("{:#}", anyhow::Error::from(error)), next)
        }
    }
}

fn identity_next_step(error: &IdentityError) -> &'static str {
    match error {
        IdentityError::Io { .. } => "make the directory readable for this user, and check its disk",
        IdentityError::Unreadable { .. } => "delete that file; the next start of the daemon writes it again",
        IdentityError::NoStore { .. } => {
            "put the database back with `dorm restore`, rebuild it with `dorm repair`, or start with --new-store"
        }
        IdentityError::LogAlone { .. } => "put the database back beside it, or move that file away",
        IdentityError::StoreThere { .. } => "start without --new-store, or move that file away",
        IdentityError::ForeignStore { .. } => {
            "put back the database of this directory, or move that file away and start with --new-store"
        }
        IdentityError::Copy { .. } => "start the daemon in the original directory, or here with --as-copy",
        IdentityError::Store(_) => "check the disk of the data directory",
    }
}

fn reflink(there: &Path) -> Check {
    const NAME: &str = "reflink";
    let next = "this costs only speed and space: on XFS or btrfs, copies of disks and images share blocks";
    match shares_blocks(there) {
        Ok(()) => Check::ok(NAME, format!("files in {} can share blocks", there.display())),
        Err(error) => Check::warn(NAME, format!("files in {} cannot share blocks: {error}", there.display()), next),
    }
}

/// Tries it with two files without a name, so that nothing is left behind.
fn shares_blocks(directory: &Path) -> rustix::io::Result<()> {
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600))
    };
    let (from, to) = (unnamed()?, unnamed()?);
    rustix::io::write(&from, &[1; 4096])?;
    rustix::fs::ioctl_ficlone(&to, &from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_is_judged_by_the_one_above() {
        let above = tempfile::tempdir().unwrap();
        let below = above.path().join("not/yet");
        assert_eq!(existing(&below), above.path());
        let checks = checks(&below);
        assert!(checks[0].found.contains(&below.display().to_string()), "{checks:?}");
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn a_mount_without_execution_is_warned_of() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        assert_eq!(executable(home.path()).verdict, super::super::Verdict::Ok);
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "noexec,size=64k", "none"])
            .arg(home.path())
            .status();
        assert!(mounted.unwrap().success());
        let check = executable(home.path());
        let unmounted = std::process::Command::new("umount").arg(home.path()).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(check.verdict, super::super::Verdict::Warn, "{check:?}");
        assert!(check.next_step.contains("remount"), "{check:?}");
    }

    #[test]
    fn a_directory_that_sandboxes_cannot_reach_fails_and_says_what_to_do() {
        use std::os::unix::fs::PermissionsExt as _;
        let above = tempfile::Builder::new().prefix("doctor-").tempdir_in("/var/tmp").unwrap();
        let data = above.path().join("data");
        for is_there in [false, true] {
            if is_there {
                std::fs::create_dir(&data).unwrap();
            }
            std::fs::set_permissions(above.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
            let check = way(&data, &existing(&data));
            assert_eq!(check.verdict, super::super::Verdict::Fail, "{check:?}");
            assert!(check.next_step.contains(&format!("chmod o+x {}", above.path().display())), "{check:?}");
            std::fs::set_permissions(above.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
            assert_eq!(way(&data, &existing(&data)).verdict, super::super::Verdict::Ok);
        }
    }
}
