//! The state that all leases of a host share: the lock under which a number is chosen, the networks
//! in use, the host's own packet rules and its forwarding.
//!
//! This module reads `/proc/thread-self` instead of `/proc/net`, which shows the namespace of the
//! process's first thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use dorm_disk::lock::{self, Sharing};
use dorm_engine::LeaseId;
use ipnet::Ipv4Net;

use crate::command::{CommandError, Commands};
use crate::layout::{INTERFACES, Layout, path};
use crate::ruleset::Closing;
use crate::{forwarding, namespace, ruleset};

const DIRECTORY: &str = "/run/dormouse";
/// How long another daemon may hold the host's lock: many times what creating a network takes on a
/// busy host.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
const MTU_USUAL: u16 = 1500;
const MTU_LEAST: u16 = 576;

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

    /// Lets sandboxes reach the internet through the host, but not the host itself. Called for
    /// every lease, since other programs may have flushed the host's rules.
    pub(crate) fn open_way(&self, layout: &Layout, commands: &Commands) -> Result<(), WayError> {
        self.forward()?;
        // A kernel without timeouts per rule keeps closed connections of sandboxes as long as its
        // own.
        let ruled = commands.nft(&ruleset::host(layout, Closing::Soon));
        ruled.or_else(|_| commands.nft(&ruleset::host(layout, Closing::AsTheHost))).map_err(WayError::Rules)
    }

    /// Lets the host forward replies to sandboxes.
    pub(crate) fn forward(&self) -> Result<(), WayError> {
        forwarding::open().map_err(WayError::Forward)
    }

    /// Removes the host's rules, and with the last lease of the host its forwarding.
    pub(crate) fn close_way(&self, layout: &Layout, commands: &Commands) -> Result<(), WayError> {
        forwarding::close_after_last().map_err(WayError::Forward)?;
        commands.nft(&ruleset::no_host(layout)).map_err(WayError::Rules)
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

/// Why the host cannot let sandboxes reach the internet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WayError {
    /// Forwarding could not be turned on.
    #[error("cannot change /proc/sys/net/ipv4/conf: run as root, and not in a container with a read-only /proc/sys")]
    Forward(#[source] io::Error),
    /// The packet rules could not be changed.
    #[error("cannot change the host's packet rules")]
    Rules(#[source] CommandError),
}

/// Returns the names of the interfaces in the namespace of this thread.
pub(crate) fn interfaces() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect())
}

/// Returns the bytes that an interface of the host has received and sent, if it exists.
pub(crate) fn counted(interface: &str) -> io::Result<Option<(u64, u64)>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(text.lines().find_map(|line| counts(line, interface)))
}

/// Parses a line such as `eth0: 1500 10 0 0 0 0 0 0 900 9 0 0 0 0 0 0`.
fn counts(line: &str, interface: &str) -> Option<(u64, u64)> {
    let (name, counts) = line.split_once(':')?;
    let mut counts = counts.split_whitespace();
    let received = (name.trim() == interface).then(|| counts.next()).flatten()?.parse().ok()?;
    Some((received, counts.nth(7)?.parse().ok()?))
}

/// Returns the size of the largest packet that leaves the host unfragmented, as far as that is
/// known here: at most 1500 bytes.
pub(crate) fn uplink_mtu() -> u16 {
    let device = routes().ok().and_then(|routes| routes.into_iter().find(|route| route.network.prefix_len() == 0));
    let size = device
        .and_then(|route| std::fs::read_to_string(format!("/sys/class/net/{}/mtu", route.device)).ok())
        .and_then(|text| text.trim().parse::<u16>().ok());
    size.unwrap_or(MTU_USUAL).clamp(MTU_LEAST, MTU_USUAL)
}

/// Returns the interfaces with a route, in the namespace of this thread.
pub(crate) fn devices() -> io::Result<Vec<String>> {
    Ok(routes()?.into_iter().map(|route| route.device).collect())
}

struct Route {
    device: String,
    network: Ipv4Net,
}

fn routes() -> io::Result<Vec<Route>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/route")?;
    Ok(text.lines().skip(1).filter_map(route).collect())
}

fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // The numbers have the bytes of the address in memory order.
    let address = |word: &str| u32::from_str_radix(word, 16).ok().map(|number| Ipv4Addr::from(number.to_ne_bytes()));
    let (network, mask) = (address(words.get(1)?)?, address(words.get(7)?)?);
    Some(Route { device: (*words.first()?).to_owned(), network: Ipv4Net::with_netmask(network, mask).ok()? })
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
    fn a_line_of_the_routing_table_is_read() {
        let read = route("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0").unwrap();
        assert_eq!((read.device.as_str(), read.network.to_string().as_str()), ("eth0", "192.0.2.0/24"));
        assert_eq!(route("eth0 00000000 0102000A 0003 0 0 0 00000000 0 0 0").unwrap().network.prefix_len(), 0);
    }

    #[test]
    fn the_counts_of_an_interface_are_read() {
        let line = "dorma-1: 1500 10 0 0 0 0 0 0 900 9 0 0 0 0 0 0";
        assert_eq!(counts(line, "dorma-1"), Some((1500, 900)));
        assert_eq!(counts(line, "dorma-11"), None);
        assert_eq!(counts("Inter-|   Receive", "dorma-1"), None);
    }

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
