//! API keys and ports.

use std::collections::BTreeMap;

use dorm_api_types as wire;
use dorm_lifecycle as life;
use dorm_store::{ApiKeyRecord, KeyScope};

use super::{Convert, Of, time};
use crate::error::ApiError;

impl Of<ApiKeyRecord> for wire::Key {
    fn of(record: ApiKeyRecord) -> Self {
        let ApiKeyRecord { id, project, name, scope, hash: _, created, expires } = record;
        let (scope, sandbox) = match scope {
            KeyScope::Full => (wire::KeyScope::Full, None),
            KeyScope::ReadOnly => (wire::KeyScope::ReadOnly, None),
            KeyScope::Sandbox(sandbox) => (wire::KeyScope::Sandbox, Some(sandbox.to_string())),
        };
        Self {
            id: id.to_string(),
            project: project.to_string(),
            name,
            scope,
            sandbox,
            created_at: time(created),
            expires_at: expires.map(time),
        }
    }
}

impl Of<life::PortAccess> for wire::PortAccess {
    fn of(access: life::PortAccess) -> Self {
        match access {
            life::PortAccess::Public => Self::Public,
            life::PortAccess::Private => Self::Private,
        }
    }
}

impl Of<wire::PortAccess> for life::PortAccess {
    fn of(access: wire::PortAccess) -> Self {
        match access {
            wire::PortAccess::Public => Self::Public,
            wire::PortAccess::Private => Self::Private,
        }
    }
}

impl Of<life::PortRule> for wire::PortRule {
    fn of(rule: life::PortRule) -> Self {
        let life::PortRule { access, host } = rule;
        Self { access: access.map(Convert::convert), host: host.map(|host| host.to_string()) }
    }
}

impl Of<life::PortRules> for BTreeMap<u16, wire::PortRule> {
    fn of(rules: life::PortRules) -> Self {
        rules.0.into_iter().map(|(port, rule)| (port, rule.convert())).collect()
    }
}

/// The `Host` header for programs behind ports; empty for the host that the client named.
pub(crate) fn port_host_or_none(text: &str) -> Result<Option<life::PortHost>, ApiError> {
    (!text.is_empty()).then(|| port_host(text)).transpose()
}

/// The `Host` header for programs behind ports.
pub(crate) fn port_host(text: &str) -> Result<life::PortHost, ApiError> {
    text.parse().map_err(|error: life::SpecError| ApiError::invalid(error.to_string(), ""))
}

/// The rule for one port.
pub(crate) fn port_rule(port: u16, rule: wire::PortRule) -> Result<life::PortRule, ApiError> {
    let wire::PortRule { access, host } = rule;
    let rule =
        life::PortRule { access: access.map(Convert::convert), host: host.as_deref().map(port_host).transpose()? };
    let one = life::PortRules([(port, rule.clone())].into());
    one.check().map_err(|error| ApiError::invalid(format!("port_rules: {error}"), ""))?;
    Ok(rule)
}

/// The rules for single ports.
pub(crate) fn port_rules(rules: BTreeMap<u16, wire::PortRule>) -> Result<life::PortRules, ApiError> {
    let rules = rules.into_iter().map(|(port, rule)| Ok((port, port_rule(port, rule)?)));
    rules.collect::<Result<_, ApiError>>().map(life::PortRules)
}
