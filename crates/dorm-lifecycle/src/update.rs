//! Changes of the properties of a sandbox that take effect without its engine.

use std::collections::BTreeMap;

use crate::ids::Name;
use crate::ports::{PortAccess, PortHost, PortRule};
use crate::spec::{OnTimeout, SandboxSpec, Variables, Wake};

/// A change of properties; `None` leaves a property as it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Update {
    /// Its name. A sandbox that had none can be suspended from then on.
    pub name: Option<Name>,
    /// The action when a deadline passes.
    pub on_timeout: Option<OnTimeout>,
    /// The calls that resume it while it is suspended.
    pub wake: Option<Wake>,
    /// Who may reach its ports.
    pub port_access: Option<PortAccess>,
    /// The `Host` header for programs behind its ports; `Some(None)` for the one that the client
    /// named.
    pub port_host: Option<Option<PortHost>>,
    /// The rules for single ports to set, and with `None` to remove; all others stay.
    pub port_rules: BTreeMap<u16, Option<PortRule>>,
    /// The labels to set, and with `None` to remove; all others stay.
    pub labels: BTreeMap<String, Option<String>>,
    /// The annotations to set, and with `None` to remove, by the name of the program that they
    /// belong to; all others stay.
    pub annotations: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// All secrets of its processes, in the form in which they are recorded. They hold from its
    /// next run on.
    pub secrets: Option<Variables>,
}

impl Update {
    /// Returns the properties after the change, and the words for those that it changes.
    pub(crate) fn apply(&self, spec: &SandboxSpec) -> (SandboxSpec, Vec<&'static str>) {
        let mut next = spec.clone();
        if let Some(name) = &self.name {
            next.suspendable |= spec.name.is_none();
            next.name = Some(name.clone());
        }
        next.on_timeout = self.on_timeout.unwrap_or(spec.on_timeout);
        next.wake = self.wake.unwrap_or(spec.wake);
        next.secrets = self.secrets.clone().unwrap_or_else(|| spec.secrets.clone());
        next.port_access = self.port_access.unwrap_or(spec.port_access);
        next.port_host = self.port_host.clone().unwrap_or_else(|| spec.port_host.clone());
        for (port, rule) in &self.port_rules {
            match rule {
                Some(rule) => next.port_rules.0.insert(*port, rule.clone()),
                None => next.port_rules.0.remove(port),
            };
        }
        for (key, value) in &self.labels {
            match value {
                Some(value) => next.labels.insert(key.clone(), value.clone()),
                None => next.labels.remove(key),
            };
        }
        for (program, changes) in &self.annotations {
            next.annotations.change(program, changes);
        }
        let changed = [
            ("name", next.name != spec.name),
            ("on_timeout", next.on_timeout != spec.on_timeout),
            ("wake", next.wake != spec.wake),
            ("port_access", next.port_access != spec.port_access),
            ("port_host", next.port_host != spec.port_host),
            ("port_rules", next.port_rules != spec.port_rules),
            ("labels", next.labels != spec.labels),
            ("annotations", next.annotations != spec.annotations),
            ("secrets", next.secrets != spec.secrets),
        ];
        (next, changed.into_iter().filter_map(|(what, changed)| changed.then_some(what)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: Option<&str>) -> SandboxSpec {
        SandboxSpec::new("0".repeat(64).parse().unwrap(), name.map(|name| name.parse().unwrap()))
    }

    #[test]
    fn a_name_makes_an_ephemeral_sandbox_suspendable_and_keeps_its_action_at_a_deadline() {
        let update = Update { name: Some("web".parse().unwrap()), ..Update::default() };
        let (named, changed) = update.apply(&spec(None));
        assert_eq!((named.suspendable, named.on_timeout), (true, OnTimeout::Terminate));
        assert_eq!(changed, ["name"]);
    }

    #[test]
    fn another_name_does_not_make_a_sandbox_suspendable() {
        let mut earlier = spec(Some("web"));
        (earlier.suspendable, earlier.on_timeout) = (false, OnTimeout::Terminate);
        let update = Update { name: Some("site".parse().unwrap()), ..Update::default() };
        assert!(!update.apply(&earlier).0.suspendable);
    }

    #[test]
    fn labels_are_set_and_removed_one_by_one() {
        let mut earlier = spec(None);
        earlier.labels = [("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let labels = [("b", None), ("c", Some("3")), ("d", None)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).into();
        let (next, changed) = Update { labels, ..Update::default() }.apply(&earlier);
        let next: Vec<_> = next.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!((next, changed), (vec![("a", "1"), ("c", "3")], vec!["labels"]));
    }

    #[test]
    fn the_present_properties_change_nothing() {
        let earlier = spec(Some("web"));
        let update = Update {
            name: earlier.name.clone(),
            wake: Some(earlier.wake),
            port_access: Some(earlier.port_access),
            on_timeout: Some(earlier.on_timeout),
            port_host: Some(None),
            port_rules: [(8080, None)].into(),
            labels: [("absent".to_owned(), None)].into(),
            annotations: [("e2b".to_owned(), [("absent".to_owned(), None)].into())].into(),
            secrets: Some(earlier.secrets.clone()),
        };
        assert_eq!(update.apply(&earlier), (earlier, Vec::new()));
    }
}
