//! The options for ports that `dorm sbx create` and `dorm sbx update` share.

use std::collections::BTreeMap;

use dorm_api_types as wire;

use crate::values::PortAccess;

/// Access to ports, and the host for programs behind them.
#[derive(Debug, clap::Args)]
pub(super) struct PortOptions {
    /// Access to its ports: public for everyone who knows its id, or private for callers with a
    /// key, its port token or the cookie of a link
    #[arg(long, value_enum, value_name = "ACCESS")]
    ports: Option<PortAccess>,
    /// Access to one port, such as 8080=public
    #[arg(long = "port", value_name = "PORT=ACCESS", value_parser = access)]
    one: Vec<(u16, PortAccess)>,
    /// `Host` header that programs behind its ports get, such as localhost:{port}, or 8080=HOST for
    /// one port
    #[arg(long = "port-host", value_name = "[PORT=]HOST", value_parser = host)]
    host: Vec<(Option<u16>, String)>,
}

impl PortOptions {
    /// Access to all ports.
    pub(super) fn access(&self) -> Option<wire::PortAccess> {
        self.ports.map(Into::into)
    }

    /// The host for all ports.
    pub(super) fn host(&self) -> Option<String> {
        let of_all = self.host.iter().rev().find(|(port, _)| port.is_none());
        of_all.map(|(_, host)| host.clone())
    }

    /// The rules for single ports.
    pub(super) fn rules(&self) -> BTreeMap<u16, wire::PortRule> {
        let mut rules = BTreeMap::<u16, wire::PortRule>::new();
        for (port, access) in &self.one {
            rules.entry(*port).or_default().access = Some((*access).into());
        }
        for (port, host) in &self.host {
            if let Some(port) = port {
                rules.entry(*port).or_default().host = Some(host.clone());
            }
        }
        rules
    }
}

/// Parses the number of a port.
pub(super) fn number(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| format!("'{text}' is not a port; ports are 1 to 65535"))
}

fn access(text: &str) -> Result<(u16, PortAccess), String> {
    let (port, access) = text.split_once('=').ok_or_else(|| format!("'{text}' is not PORT=ACCESS"))?;
    let access = match access {
        "public" => PortAccess::Public,
        "private" => PortAccess::Private,
        other => return Err(format!("'{other}' is not public or private")),
    };
    Ok((number(port)?, access))
}

fn host(text: &str) -> Result<(Option<u16>, String), String> {
    match text.split_once('=') {
        Some((port, host)) => Ok((Some(number(port)?), host.to_owned())),
        None => Ok((None, text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_what_was_said_about_its_port() {
        let options = PortOptions {
            ports: Some(PortAccess::Private),
            one: vec![access("8080=public").unwrap(), access("22=private").unwrap()],
            host: vec![host("localhost:{port}").unwrap(), host("8080=app.internal").unwrap()],
        };
        let rules = options.rules();
        assert_eq!(rules[&8080].host.as_deref(), Some("app.internal"));
        assert_eq!(rules[&8080].access, Some(wire::PortAccess::Public));
        assert_eq!(rules[&22], wire::PortRule { access: Some(wire::PortAccess::Private), host: None });
        assert_eq!(options.host().as_deref(), Some("localhost:{port}"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for wrong in ["8080", "0=public", "65536=public", "a=public", "80=open"] {
            assert!(access(wrong).is_err(), "{wrong}");
        }
        assert!(host("0=localhost").is_err());
    }
}
