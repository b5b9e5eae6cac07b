//! Restricts what other users of the host may do in the data directory: pass through it, as guest
//! ids must, and nothing else. A directory is restricted when a daemon takes it.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// The mode of the data directory.
const DATA: u32 = 0o711;

/// Returns whether the directory belongs to a daemon: it is empty except for what a new file system
/// contains, or a daemon used it before.
pub(super) fn is_for_a_daemon(data: &Path) -> io::Result<bool> {
    let mut empty = true;
    for entry in std::fs::read_dir(data)? {
        match entry?.file_name().to_str() {
            Some("lock" | "identity.json") => return Ok(true),
            Some("lost+found") => {}
            _ => empty = false,
        }
    }
    Ok(empty)
}

/// Restricts the modes of the directory and its entries. `is_ours` says whether the daemon may set
/// the mode of the directory itself: one with other content keeps its mode.
pub(super) fn close(data: &Path, is_ours: bool) -> io::Result<()> {
    let facts = std::fs::metadata(data)?;
    if is_ours && facts.mode() & 0o777 != DATA {
        std::fs::set_permissions(data, Permissions::from_mode(DATA))?;
    } else if facts.mode() & 0o022 != 0 {
        let what = "other users can write to it, and it has other content: choose another --data directory";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let mode = facts.mode() & 0o777;
        let wanted = if facts.is_dir() {
            directory_mode(&entry.file_name().to_string_lossy())
        } else if facts.is_file() {
            Some(mode & 0o700)
        } else {
            None
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != mode) {
            File::open(entry.path())?.set_permissions(Permissions::from_mode(wanted))?;
        }
    }
    Ok(())
}

/// Returns the mode of a directory in the data directory, or none if the component that owns it
/// sets the mode.
fn directory_mode(name: &str) -> Option<u32> {
    match name {
        // Guest ids pass through these to root file systems, to the mount points of volumes, and to
        // the agent.
        "images" => None,
        "gvisor" => Some(0o711),
        name if name.starts_with("agent-") => Some(0o711),
        _ => Some(0o700),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_an_earlier_version_left_open_is_closed() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        for (name, open) in [("lock", 0o644), ("dormouse.db", 0o644), ("address", 0o604), ("key", 0o600)] {
            std::fs::write(data.join(name), "").unwrap();
            std::fs::set_permissions(data.join(name), Permissions::from_mode(open)).unwrap();
        }
        for name in ["gvisor", "agent-1", "network", "lost+found", "images"] {
            std::fs::create_dir(data.join(name)).unwrap();
            std::fs::set_permissions(data.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(data, Permissions::from_mode(0o755)).unwrap();
        assert!(is_for_a_daemon(data).unwrap());
        close(data, true).unwrap();
        assert_eq!(mode(data), 0o711);
        for name in ["lock", "dormouse.db", "address", "key"] {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
        }
        let directories = [("gvisor", 0o711), ("agent-1", 0o711), ("network", 0o700), ("images", 0o755)];
        for (name, wanted) in directories {
            assert_eq!(mode(&data.join(name)), wanted, "{name}");
        }
    }

    #[test]
    fn a_directory_that_others_use_keeps_its_mode_and_is_refused_when_they_may_write() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        std::fs::write(data.join("somebody's"), "").unwrap();
        std::fs::set_permissions(data, Permissions::from_mode(0o755)).unwrap();
        assert!(!is_for_a_daemon(data).unwrap());
        close(data, false).unwrap();
        assert_eq!(mode(data), 0o755);
        std::fs::set_permissions(data, Permissions::from_mode(0o1777)).unwrap();
        assert!(close(data, false).unwrap_err().to_string().contains("--data"));
    }
}
