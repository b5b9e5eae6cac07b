//! Membership in a pool: sandboxes that are made in advance and wait, suspended, to be claimed.

use std::collections::BTreeMap;

use crate::ids::{Name, PoolId};
use crate::ports::PortAccess;
use crate::spec::{OnTimeout, SandboxSpec, Timeouts, Wake};

/// Where a sandbox stands in the pool that it was made for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolMember {
    /// The pool.
    pub pool: PoolId,
    /// Whether it was claimed: it is a sandbox like any other then.
    pub is_claimed: bool,
}

/// The properties with which a member of a pool is claimed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Claim {
    /// Its name, if any.
    pub name: Option<Name>,
    /// Environment variables of the processes that start in it from then on, in addition to those
    /// of the pool.
    pub variables: BTreeMap<String, String>,
    /// Labels, in addition to those of the pool.
    pub labels: BTreeMap<String, String>,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// The action when a deadline passes; by default suspend with a name, terminate without.
    pub on_timeout: Option<OnTimeout>,
    /// The calls that resume it while it is suspended.
    pub wake: Wake,
    /// Who may reach its ports, if not as the pool says.
    pub port_access: Option<PortAccess>,
}

impl Claim {
    /// Returns the properties of a member that was claimed.
    pub(crate) fn apply(&self, spec: &SandboxSpec) -> SandboxSpec {
        let mut next = spec.clone();
        next.name = self.name.clone();
        next.variables.0.extend(self.variables.clone());
        next.labels.extend(self.labels.clone());
        next.timeouts = self.timeouts;
        next.on_timeout = self.on_timeout.unwrap_or(match self.name {
            Some(_) => OnTimeout::Suspend,
            None => OnTimeout::Terminate,
        });
        next.wake = self.wake;
        next.port_access = self.port_access.unwrap_or(spec.port_access);
        next
    }
}
