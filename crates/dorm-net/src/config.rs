//! The configuration of a [`HostNetwork`](crate::HostNetwork).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use dorm_ports::LateVault;
use dorm_steps::AnySteps;
use ipnet::Ipv4Net;
use thiserror::Error;

use crate::limits::TrafficLimits;

const NAME_PORT: u16 = 53;

/// The configuration of one daemon's network.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the notes of leases. Created if missing. Only one daemon at a time can use
    /// it.
    pub directory: PathBuf,
    /// Part of the name of everything created on the host, which keeps daemons apart: 1 to 4
    /// lower-case letters and digits, such as the start of a hash of the data directory.
    pub prefix: String,
    /// The ID of the data directory, which every note contains. Notes with another ID are left
    /// alone: this directory is then a copy of another.
    pub owner: String,
    /// The range of the networks between host and gateways, of four addresses each. Default
    /// 10.200.0.0/16. Several daemons may share a range: networks that the host already uses are
    /// skipped.
    pub supernet: Ipv4Net,
    /// The name servers. Default: those in `/etc/resolv.conf`.
    pub dns: NameServers,
    /// The traffic limits of each sandbox.
    pub limits: TrafficLimits,
    /// How often to check that the host still forwards packets of sandboxes. Default 10 seconds.
    pub watch_every: Duration,
    /// The secrets of header rules, and the authorities that sandboxes trust. Default: one that is
    /// never opened.
    pub vault: LateVault,
    /// Certificate authorities, in DER, that hosts of header rules may have, besides the roots of
    /// this host.
    pub also_trusted: Vec<Vec<u8>>,
    /// The time limits of connections through header rules.
    pub proxy: ProxyLimits,
    /// Called at each step that changes the host. Default: does nothing.
    pub steps: AnySteps,
}

impl Config {
    /// Returns a configuration with all defaults.
    pub fn new(directory: impl Into<PathBuf>, prefix: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            prefix: prefix.into(),
            owner: String::new(),
            supernet: Ipv4Net::new_assert([10, 200, 0, 0].into(), 16),
            dns: NameServers::File("/etc/resolv.conf".into()),
            limits: TrafficLimits::default(),
            watch_every: Duration::from_secs(10),
            vault: LateVault::default(),
            also_trusted: Vec::new(),
            proxy: ProxyLimits::default(),
            steps: dorm_steps::pass(),
        }
    }
}

/// The time limits of connections through header rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyLimits {
    /// Until the sandbox has said which host it wants. Default 10 seconds.
    pub hello: Duration,
    /// Until each address of the host answers, and then its TLS. Default 10 seconds.
    pub connect: Duration,
    /// Between requests of a connection, and for the head of each. Default 5 minutes.
    pub idle: Duration,
    /// Until the host answers a request of which nothing more is being sent. Default 10 minutes.
    pub answer: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            answer: Duration::from_secs(600),
        }
    }
}

/// The name servers that receive sandboxes' DNS queries, from the host's own network.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// The `nameserver` lines of a file like `/etc/resolv.conf`, read again for every query.
    File(PathBuf),
    /// These servers, in this order.
    Fixed(Vec<SocketAddr>),
}

impl NameServers {
    /// Returns the servers to ask now, in order; none if the file cannot be read.
    #[allow(clippy::disallowed_methods, reason = "a small file of the system, which is in memory")]
    pub(crate) fn now(&self) -> Vec<SocketAddr> {
        match self {
            Self::File(path) => parse(&std::fs::read_to_string(path).unwrap_or_default()),
            Self::Fixed(servers) => servers.clone(),
        }
    }
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().map(str::split_whitespace);
    words
        .filter_map(|mut words| (words.next() == Some("nameserver")).then(|| words.next()).flatten())
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, NAME_PORT))
        .collect()
}

/// Why a configuration is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// The prefix does not fit into the name of an interface.
    #[error("invalid network prefix '{0}': use 1 to 4 lower-case letters and digits")]
    Prefix(String),
    /// The range is too small for a lease, or larger than the range of lease numbers.
    #[error("invalid uplink network {0}: its prefix length must be between 14 and 30, as in 10.200.0.0/16")]
    Supernet(Ipv4Net),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_in_order_and_other_lines_are_passed_over() {
        let text = "# nameserver 9.9.9.9\nsearch example.org\nnameserver 127.0.0.53\nnameserver  ::1 \nnameserver x\n";
        assert_eq!(parse(text), ["127.0.0.53:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(NameServers::File("/nowhere".into()).now(), []);
    }
}
