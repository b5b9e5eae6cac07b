//! The settings that a snapshot carries for the sandboxes that are made from it.

use crate::egress::Egress;
use crate::ports::{PortAccess, PortHost, PortRules};
use crate::spec::SandboxSpec;
use crate::state::FirstProgram;

/// The settings that a sandbox inherits from the source of its snapshot unless its request gives
/// others. Variables and secrets are not among them: their values may be secret. Header rules of
/// the egress policy name secrets of the project, and contain none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InheritedSettings {
    /// Where it may connect to.
    pub egress: Egress,
    /// Who may reach its ports.
    pub port_access: PortAccess,
    /// The `Host` header for programs behind its ports; `None` for the one that the client named.
    pub port_host: Option<PortHost>,
    /// The exceptions for single ports.
    pub port_rules: PortRules,
    /// The program that a boot starts. A memory snapshot contains it, as it ran.
    pub program: FirstProgram,
}

impl InheritedSettings {
    /// Returns the settings of a snapshot whose source is lost: nothing is open that the source may
    /// have closed.
    pub fn closed() -> Self {
        Self {
            egress: Egress::closed(),
            port_access: PortAccess::Private,
            port_host: None,
            port_rules: PortRules::default(),
            program: FirstProgram::None,
        }
    }
}

impl SandboxSpec {
    /// Returns the settings that a snapshot taken now carries.
    pub fn inherited(&self) -> InheritedSettings {
        InheritedSettings {
            egress: self.egress.clone(),
            port_access: self.port_access,
            port_host: self.port_host.clone(),
            port_rules: self.port_rules.clone(),
            program: self.program,
        }
    }
}
