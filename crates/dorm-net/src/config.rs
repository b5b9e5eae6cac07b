//! What a [`HostNetwork`](crate::HostNetwork) is told when it is opened. Knows nothing of how it is used.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use dorm_steps::AnySteps;
use ipnet::Ipv4Net;
use thiserror::Error;

use crate::traffic::TrafficLimits;

const NAME_PORT: u16 = 53;

/// How the network of one daemon is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the notes on leases. Made when missing. One daemon at a time may use it.
    pub directory: PathBuf,
    /// Part of the name of everything made on the host, so that daemons do not get into each other's way: 1 to 4
    /// lower-case letters and digits, such as the start of a hash of the data directory.
    pub prefix: String,
    /// The id of the data directory, written into every note. Notes with another id are left alone: this directory is a
    /// copy of another.
    pub owner: String,
    /// Where the networks between host and gateways are taken from, four addresses each. Default 10.200.0.0/16.
    /// Several daemons may share one: a network that the host already uses is left out.
    pub supernet: Ipv4Net,
    /// Who answers look-ups of names. Default: what `/etc/resolv.conf` says.
    pub dns: NameServers,
    /// How much traffic each sandbox may cause.
    pub limits: TrafficLimits,
    /// How often is looked whether the host still forwards packets of sandboxes. Default 10 seconds.
    pub watch_every: Duration,
    /// Who is asked at each step that changes the host. Default: nobody.
    pub steps: AnySteps,
}

impl Config {
    /// A configuration with every default.
    pub fn new(directory: impl Into<PathBuf>, prefix: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            prefix: prefix.into(),
            owner: String::new(),
            supernet: Ipv4Net::new_assert([10, 200, 0, 0].into(), 16),
            dns: NameServers::File("/etc/resolv.conf".into()),
            limits: TrafficLimits::default(),
            watch_every: Duration::from_secs(10),
            steps: dorm_steps::pass(),
        }
    }
}

/// The name servers that sandboxes' look-ups are passed on to, from the host's own network.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// The `nameserver` lines of a file like `/etc/resolv.conf`, read again for every look-up.
    File(PathBuf),
    /// These, in this order.
    Fixed(Vec<SocketAddr>),
}

impl NameServers {
    /// Those to ask now, in order; none if the file cannot be read.
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

/// Why a configuration cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// The prefix would not fit into the name of an interface.
    #[error("invalid network prefix '{0}': use 1 to 4 lower-case letters and digits")]
    Prefix(String),
    /// There are no leases in it, or more than there are numbers.
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
