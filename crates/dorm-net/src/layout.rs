//! The names and addresses of the parts of a lease. Pure: it reads nothing from the host.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use dorm_engine::{Lease, LeaseId};
use ipnet::Ipv4Net;

use crate::config::{Config, ConfigError};

/// The directory of named network namespaces, by the convention of `ip netns`.
pub(crate) const NAMESPACES: &str = "/run/netns";
/// The common prefix of every interface of every daemon on the host.
pub(crate) const INTERFACES: &str = "dorm";

/// The interface in the sandbox's namespace.
pub(crate) const SANDBOX_INTERFACE: &str = "eth0";
/// The gateway's interface towards the sandbox.
pub(crate) const INNER_INTERFACE: &str = "inner";
/// The gateway's interface towards the host.
pub(crate) const UPLINK_INTERFACE: &str = "uplink";

/// The sandbox's address, the same in every lease.
pub(crate) const SANDBOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The gateway's address for the sandbox, the same in every lease.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The prefix length of both networks.
pub(crate) const PREFIX_LENGTH: u8 = 30;

// All hardware addresses are fixed. A restored guest has the gateway's in its memory, and our own
// ends need no ARP requests: a lost one costs a second.
pub(crate) const SANDBOX_MAC: [u8; 6] = [2, 0, 10, 0, 0, 2];
pub(crate) const GATEWAY_MAC: [u8; 6] = [2, 0, 10, 0, 0, 1];
pub(crate) const UPLINK_HOST_MAC: [u8; 6] = [2, 0, 10, 0, 1, 1];
pub(crate) const UPLINK_GATEWAY_MAC: [u8; 6] = [2, 0, 10, 0, 1, 2];

/// The names and addresses of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: String,
    supernet: Ipv4Net,
}

impl Layout {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let prefix = config.prefix.clone();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if prefix.is_empty() || prefix.len() > 4 || !prefix.chars().all(plain) {
            return Err(ConfigError::Prefix(prefix));
        }
        if !(14..=PREFIX_LENGTH).contains(&config.supernet.prefix_len()) {
            return Err(ConfigError::Supernet(config.supernet));
        }
        Ok(Self { prefix, supernet: config.supernet.trunc() })
    }

    pub(crate) fn supernet(&self) -> Ipv4Net {
        self.supernet
    }

    /// Returns every number that a lease can have.
    pub(crate) fn ids(&self) -> impl Iterator<Item = LeaseId> + use<> {
        let last = (1_u32 << (PREFIX_LENGTH - self.supernet.prefix_len())) - 1;
        (0..=u16::try_from(last).unwrap_or(u16::MAX)).map(LeaseId)
    }

    /// Returns the name of the sandbox's namespace.
    pub(crate) fn sandbox_namespace(&self, id: LeaseId) -> String {
        format!("{}{}", self.namespaces_start(), id.0)
    }

    /// Returns the name of the gateway's namespace.
    pub(crate) fn gateway_namespace(&self, id: LeaseId) -> String {
        format!("{}{}-gw", self.namespaces_start(), id.0)
    }

    /// Returns the name of the host's end of the uplink.
    pub(crate) fn uplink(&self, id: LeaseId) -> String {
        format!("{}{}", self.uplinks_start(), id.0)
    }

    /// Returns the prefix of the names of this daemon's uplinks.
    pub(crate) fn uplinks_start(&self) -> String {
        format!("{INTERFACES}{}-", self.prefix)
    }

    /// Returns the prefix of the names of this daemon's namespaces.
    pub(crate) fn namespaces_start(&self) -> String {
        format!("{INTERFACES}-{}-", self.prefix)
    }

    /// Returns the name of the host's table of packet rules.
    pub(crate) fn table(&self) -> String {
        format!("dorm_{}", self.prefix)
    }

    /// Returns the network between host and gateway.
    pub(crate) fn uplink_network(&self, id: LeaseId) -> Ipv4Net {
        let base = u32::from(self.supernet.network()) + 4 * u32::from(id.0);
        Ipv4Net::new_assert(base.into(), PREFIX_LENGTH)
    }

    /// Returns the host's address in that network.
    pub(crate) fn uplink_host(&self, id: LeaseId) -> Ipv4Addr {
        (u32::from(self.uplink_network(id).network()) + 1).into()
    }

    /// Returns the gateway's address in that network.
    pub(crate) fn uplink_gateway(&self, id: LeaseId) -> Ipv4Addr {
        (u32::from(self.uplink_network(id).network()) + 2).into()
    }

    /// Returns the lease as its user sees it.
    pub(crate) fn lease(&self, id: LeaseId) -> Lease {
        Lease {
            id,
            namespace: path(&self.sandbox_namespace(id)),
            interface: SANDBOX_INTERFACE.into(),
            mac: SANDBOX_MAC,
            address: SANDBOX,
            prefix: PREFIX_LENGTH,
            gateway: GATEWAY,
        }
    }

    /// Returns the number in the name of an interface or namespace that begins with `start`.
    pub(crate) fn id_in(name: &str, start: &str) -> Option<LeaseId> {
        let rest = name.strip_prefix(start)?;
        rest.strip_suffix("-gw").unwrap_or(rest).parse().ok().map(LeaseId)
    }
}

/// Returns the path of a named namespace.
pub(crate) fn path(namespace: &str) -> PathBuf {
    [NAMESPACES, namespace].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(prefix: &str, supernet: &str) -> Result<Layout, ConfigError> {
        let mut config = Config::new("/nowhere", prefix);
        config.supernet = supernet.parse().unwrap();
        Layout::new(&config)
    }

    #[test]
    fn the_longest_interface_name_fits_the_kernel() {
        let name = layout("zzzz", "10.200.0.0/14").unwrap().uplink(LeaseId(u16::MAX));
        assert_eq!((name.as_str(), name.len()), ("dormzzzz-65535", 14));
    }

    #[test]
    fn every_lease_has_four_addresses_of_its_own() {
        let layout = layout("a", "10.200.0.0/16").unwrap();
        assert_eq!(layout.ids().count(), 16_384);
        assert_eq!(layout.uplink_network(LeaseId(16_383)).to_string(), "10.200.255.252/30");
        assert_eq!(layout.uplink_host(LeaseId(1)).to_string(), "10.200.0.5");
        assert_eq!(layout.uplink_gateway(LeaseId(1)).to_string(), "10.200.0.6");
    }

    #[test]
    fn a_prefix_or_supernet_that_cannot_work_is_refused() {
        for prefix in ["", "abcde", "A", "a-b", "ä"] {
            assert_eq!(layout(prefix, "10.0.0.0/16").unwrap_err(), ConfigError::Prefix(prefix.into()));
        }
        for supernet in ["10.0.0.0/8", "10.0.0.0/31"] {
            assert_eq!(layout("a", supernet).unwrap_err(), ConfigError::Supernet(supernet.parse().unwrap()));
        }
        assert_eq!(layout("a", "10.0.0.0/30").unwrap().ids().count(), 1);
        assert_eq!(layout("a", "10.0.0.0/14").unwrap().ids().count(), 65_536);
    }

    #[test]
    fn numbers_are_found_in_names_of_this_daemon_only() {
        let layout = layout("ab", "10.200.0.0/16").unwrap();
        let start = layout.namespaces_start();
        assert_eq!(Layout::id_in("dorm-ab-7", &start), Some(LeaseId(7)));
        assert_eq!(Layout::id_in("dorm-ab-7-gw", &start), Some(LeaseId(7)));
        assert_eq!(Layout::id_in("dorm-abc-7", &start), None);
        assert_eq!(Layout::id_in("dormab-7", &layout.uplinks_start()), Some(LeaseId(7)));
    }
}
