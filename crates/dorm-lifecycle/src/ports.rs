//! Access to single ports of a sandbox, and the host that requests to them name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::spec_error::SpecError;

/// The part of a [`PortHost`] that stands for the number of the port.
const PORT: &str = "{port}";
/// The longest [`PortHost`], in bytes.
const HOST_BYTES_MAX: usize = 255;

/// The callers that may reach the ports of a sandbox through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PortAccess {
    /// Everyone who knows the sandbox's id. The default.
    #[default]
    Public,
    /// Callers with an API key, the sandbox's port token, or the cookie of a link to the port.
    Private,
}

/// The `Host` header that the program inside gets in place of the one that the client sent.
/// `{port}` in it stands for the number of the port. Programs that answer only to a host of their
/// own need it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortHost(String);

impl PortHost {
    /// Returns the host for requests to a port.
    pub fn at(&self, port: u16) -> String {
        self.0.replace(PORT, &port.to_string())
    }

    /// Returns the text that it was made of.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PortHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PortHost {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let plain = text.replace(PORT, "0");
        if (1..=HOST_BYTES_MAX).contains(&text.len()) && plain.bytes().all(is_of_host) {
            Ok(Self(text.to_owned()))
        } else {
            Err(SpecError::PortHost(text.to_owned()))
        }
    }
}

/// The rule for one port; `None` leaves the decision to the sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortRule {
    /// Who may reach it. Default: as set for all ports of the sandbox.
    pub access: Option<PortAccess>,
    /// The host that the program inside is told. Default: as set for all ports of the sandbox.
    pub host: Option<PortHost>,
}

/// The rules for single ports of a sandbox, by the number of the port.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortRules(pub BTreeMap<u16, PortRule>);

impl PortRules {
    /// The largest number of rules.
    pub const MAX: usize = 64;

    /// Rejects too many rules, a rule for port 0, and a rule that says nothing.
    ///
    /// # Errors
    ///
    /// The first [`SpecError`] found.
    pub fn check(&self) -> Result<(), SpecError> {
        let Self(rules) = self;
        if rules.len() > Self::MAX {
            return Err(SpecError::TooManyPortRules(rules.len()));
        }
        let is_wrong = |(port, rule): (&u16, &PortRule)| (*port == 0 || *rule == PortRule::default()).then_some(*port);
        rules.iter().find_map(is_wrong).map_or(Ok(()), |port| Err(SpecError::PortRule(port)))
    }
}

/// How requests to one port are treated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortTerms {
    /// Who may reach it.
    pub access: PortAccess,
    /// The host that the program inside is told; `None` for the one that the client named.
    pub host: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SandboxSpec;

    #[test]
    fn a_rule_for_a_port_goes_before_the_setting_of_the_sandbox() {
        let mut spec = SandboxSpec::new("0".repeat(64).parse().expect("digest"), None);
        spec.port_access = PortAccess::Private;
        spec.port_host = Some("localhost:{port}".parse().expect("host"));
        let rule = PortRule { access: Some(PortAccess::Public), host: None };
        spec.port_rules.0.insert(8080, rule);
        let own = PortRule { access: None, host: Some("app.internal".parse().expect("host")) };
        spec.port_rules.0.insert(3000, own);
        let terms = |access, host: &str| PortTerms { access, host: Some(host.to_owned()) };
        assert_eq!(spec.port(8080), terms(PortAccess::Public, "localhost:8080"));
        assert_eq!(spec.port(3000), terms(PortAccess::Private, "app.internal"));
        assert_eq!(spec.port(22), terms(PortAccess::Private, "localhost:22"));
        assert_eq!(spec.check(), Ok(()));
    }

    #[test]
    fn a_host_is_one_that_a_header_can_carry() {
        for host in ["localhost", "localhost:{port}", "{port}.app.internal", "[::1]:{port}", "my_app"] {
            assert!(host.parse::<PortHost>().is_ok(), "{host}");
        }
        for wrong in ["", "a b", "a\r\nx: y", "http://a", "a/b", "ä", "{host}", &"a".repeat(256)] {
            assert_eq!(wrong.parse::<PortHost>(), Err(SpecError::PortHost(wrong.to_owned())));
        }
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        let public = PortRule { access: Some(PortAccess::Public), host: None };
        let many: BTreeMap<_, _> = (1..=65).map(|port| (port, public.clone())).collect();
        assert_eq!(PortRules(many).check(), Err(SpecError::TooManyPortRules(65)));
        assert_eq!(PortRules([(0, public)].into()).check(), Err(SpecError::PortRule(0)));
        assert_eq!(PortRules([(80, PortRule::default())].into()).check(), Err(SpecError::PortRule(80)));
    }
}
