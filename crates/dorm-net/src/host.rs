//! The lock of all daemons of a host, under which a number is chosen.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use dorm_disk::lock::{self, Sharing};
use dorm_engine::LeaseId;
use ipnet::Ipv4Net;

use crate::interfaces::{interfaces, routes};
use crate::layout::{INTERFACES, Layout, path};
use crate::namespace;

const DIRECTORY: &str = "/run/dormouse";
/// How long another daemon may hold the host's lock: many times what creating a network takes on a
/// busy host.
const LOCK_LIMIT: Duration = Duration::from_secs(60);

/// The lock that every daemon on the host takes to choose a number and to change the host's rules.
/// It is released when the process ends.
#[derive(Debug)]
pub(crate) struct HostLock {
    _file: File,
}

impl HostLock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// When another process, which is named, holds the lock too long, or the directory of the lock
    /// cannot be trusted.
    pub(crate) fn take() -> io::Result<Self> {
        let directory = Path::new(DIRECTORY);
        close(directory)?;
        Ok(Self { _file: lock::take(&directory.join("net.lock"), Sharing::Exclusive, LOCK_LIMIT)? })
    }

    /// Returns the lowest number whose names and network are unused, or how many numbers there are.
    pub(crate) fn free(&self, layout: &Layout, noted: &BTreeSet<LeaseId>) -> io::Result<Result<LeaseId, usize>> {
        let taken: BTreeSet<LeaseId> = interfaces()?.iter().filter_map(|name| uplink_number(name)).collect();
        let routes: Vec<Ipv4Net> = routes()?
            .into_iter()
            .map(|route| route.network)
            .filter(|route| layout.supernet().contains(route))
            .collect();
        let free = |id: &LeaseId| {
            let network = layout.uplink_network(*id);
            let overlaps = |route: &Ipv4Net| route.contains(&network) || network.contains(route);
            !noted.contains(id) && !taken.contains(id) && !routes.iter().any(overlaps) && unnamed(layout, *id)
        };
        let found = layout.ids().find(free);
        Ok(found.ok_or_else(|| layout.ids().count()))
    }
}

/// Creates the directory, or removes other users' access to it: anyone who can open the lock can
/// hold it.
fn close(directory: &Path) -> io::Result<()> {
    let refused = |what: &str| {
        let shown = directory.display();
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{shown} {what}: remove it and restart the daemon"),
        ))
    };
    let facts = match std::fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match std::fs::DirBuilder::new().mode(0o700).recursive(true).create(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => std::fs::symlink_metadata(directory)?,
            }
        }
        facts => facts?,
    };
    if !facts.is_dir() {
        return refused("is not a directory");
    }
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return refused(&format!("belongs to user {}", facts.uid()));
    }
    if facts.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Returns the number in the name of any daemon's uplink.
fn uplink_number(name: &str) -> Option<LeaseId> {
    name.strip_prefix(INTERFACES)?.rsplit_once('-')?.1.parse().ok().map(LeaseId)
}

fn unnamed(layout: &Layout, id: LeaseId) -> bool {
    let names = [layout.sandbox_namespace(id), layout.gateway_namespace(id)];
    !names.iter().any(|name| namespace::exists(&path(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_directory_is_closed_to_other_users_or_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("run");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        close(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        close(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        assert!(close(&link).unwrap_err().to_string().contains("is not a directory"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(65_533), None).unwrap();
            assert!(close(&directory).unwrap_err().to_string().contains("belongs to user 65533"));
        }
    }

    #[test]
    fn numbers_of_other_daemons_count_as_taken() {
        assert_eq!(uplink_number("dormzz-12"), Some(LeaseId(12)));
        assert_eq!(uplink_number("eth0-1"), None);
    }
}
