//! Where a sandbox may connect to, as the packet rules and the look-up of names understand it.

use dorm_lifecycle::{Egress, EgressRule, EgressRuleError, HostPattern};
use ipnet::Ipv4Net;

/// Where a sandbox may connect to, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Nowhere.
    Nothing,
    /// Everywhere but private networks, and names.
    Public,
    /// These.
    Only {
        /// Whatever is in them.
        networks: Vec<Ipv4Net>,
        /// The public addresses of these, learned while they are looked up.
        hosts: Vec<HostPattern>,
    },
}

impl Policy {
    /// That of an egress.
    ///
    /// # Errors
    /// An entry of the list is neither a network nor a host.
    pub(crate) fn of(egress: &Egress) -> Result<Self, EgressRuleError> {
        let entries = match egress {
            Egress::None => return Ok(Self::Nothing),
            Egress::Public => return Ok(Self::Public),
            Egress::Allow(entries) => entries,
        };
        let (mut networks, mut hosts) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.parse()? {
                EgressRule::Network { address, prefix } => {
                    networks.push(Ipv4Net::new(address, prefix).map_err(|_| EgressRuleError(entry.clone()))?);
                }
                EgressRule::Host(pattern) => hosts.push(pattern),
            }
        }
        hosts.sort_unstable();
        hosts.dedup();
        Ok(Self::Only { networks, hosts })
    }
}
