//! The destinations a sandbox may connect to, as used by the packet rules and the DNS forwarder.

use dorm_lifecycle::{Egress, EgressRule, EgressRuleError, HostPattern};
use ipnet::Ipv4Net;

/// The destinations a sandbox may connect to, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// None.
    Nothing,
    /// All except private networks, and all names.
    Public,
    /// Only the listed ones.
    Only {
        /// All addresses in these networks.
        networks: Vec<Ipv4Net>,
        /// The public addresses of these names, learned when they are resolved.
        hosts: Vec<HostPattern>,
    },
}

impl Policy {
    /// Returns the policy of an egress.
    ///
    /// # Errors
    /// When an entry of the list is neither a network nor a host name.
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
