//! The destinations a sandbox may connect to, as used by the packet rules and the DNS forwarder.
//!
//! Packets are judged by their address, so a name rule becomes a set of learned addresses. All
//! names that are allowed between two rules that deny networks share a set (a group): within a
//! group, the order does not matter for packets.

use std::hash::{DefaultHasher, Hash, Hasher};

use dorm_lifecycle::{
    Egress, EgressDefault, EgressError, EgressPolicy, EgressTarget, HeaderRule, HostPattern, Network, ParsedHeader,
    Verdict,
};

/// The destinations a sandbox may connect to, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    /// The rules for addresses, in order.
    pub(crate) parts: Vec<Part>,
    /// The rules for names, in order.
    pub(crate) names: Vec<NameRule>,
    /// Destinations that nothing else decides about.
    pub(crate) default: EgressDefault,
    /// The header rules.
    pub(crate) headers: Vec<ParsedHeader>,
    /// The rules as they are, for connections that the daemon makes in place of the sandbox.
    pub(crate) judge: EgressPolicy,
}

/// A part of the packet rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Networks that are allowed, or the public addresses in them.
    Allow(Vec<Network>),
    /// Networks that are denied.
    Deny(Vec<Network>),
    /// The addresses learned for the names of a group.
    Learned {
        /// The number of the group.
        group: usize,
        /// The mark of connections to such addresses. It depends on the name rules up to here, so
        /// it changes with them.
        mark: u32,
    },
}

/// A rule for names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NameRule {
    /// The names; `None` for every name.
    pattern: Option<HostPattern>,
    decision: Decision,
}

/// The decision about a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// It is refused.
    Refuse,
    /// It is answered, and the addresses in the answer are permitted for this group.
    Learn(usize),
    /// It is answered. Its addresses are judged by their networks.
    Answer,
}

impl Policy {
    /// Returns the policy that allows nothing.
    pub(crate) fn nothing() -> Self {
        let judge = EgressPolicy { rules: Vec::new(), default: EgressDefault::Deny };
        Self { parts: Vec::new(), names: Vec::new(), default: EgressDefault::Deny, headers: Vec::new(), judge }
    }

    /// Returns the policy of an egress.
    ///
    /// # Errors
    /// When an entry of the list, or a rule, names neither a network nor a host name, and for an
    /// invalid header rule.
    pub(crate) fn of(egress: &Egress) -> Result<Self, EgressError> {
        let mut parsed = egress.policy()?;
        // In a list, the network of all addresses stands for no name (decision 0031).
        let is_list = matches!(egress, Egress::Allow(_));
        if is_list {
            // The order of a list does not matter, so it must not change the marks of connections.
            parsed.rules.sort_by_key(|rule| match &rule.to {
                EgressTarget::Network(_) => None,
                EgressTarget::Host(pattern) => Some(pattern.clone()),
            });
            parsed.rules.dedup();
        }
        let headers = egress.headers().iter().map(HeaderRule::parsed).collect::<Result<_, _>>()?;
        let mut policy = Self { default: parsed.default, headers, judge: parsed.clone(), ..Self::nothing() };
        let mut group = Group::default();
        for rule in parsed.rules {
            match (rule.verdict, rule.to) {
                (verdict, EgressTarget::Network(network)) => {
                    if verdict == Verdict::Deny {
                        group.end(&mut policy.parts);
                    }
                    policy.add(verdict, network);
                    if network == Network::ALL && !is_list {
                        let decision = if verdict == Verdict::Deny { Decision::Refuse } else { Decision::Answer };
                        policy.names.push(NameRule { pattern: None, decision });
                    }
                }
                (verdict, EgressTarget::Host(pattern)) => {
                    (verdict, &pattern).hash(&mut group.hasher);
                    let decision = match verdict {
                        Verdict::Allow => Decision::Learn(group.begin()),
                        Verdict::Deny => Decision::Refuse,
                    };
                    policy.names.push(NameRule { pattern: Some(pattern), decision });
                }
            }
        }
        group.end(&mut policy.parts);
        Ok(policy)
    }

    fn add(&mut self, verdict: Verdict, network: Network) {
        match (verdict, self.parts.last_mut()) {
            (Verdict::Allow, Some(Part::Allow(networks))) | (Verdict::Deny, Some(Part::Deny(networks))) => {
                networks.push(network);
            }
            (Verdict::Allow, _) => self.parts.push(Part::Allow(vec![network])),
            (Verdict::Deny, _) => self.parts.push(Part::Deny(vec![network])),
        }
    }

    /// Returns the ports whose connections go through the proxy, in order.
    pub(crate) fn proxied_ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.headers.iter().map(|header| header.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Returns the decision about every name, if it is the same for all.
    pub(crate) fn decision_for_all(&self) -> Option<Decision> {
        match self.names.first() {
            Some(NameRule { pattern: None, decision }) => Some(*decision),
            Some(_) => None,
            None => Some(self.decision_by_default()),
        }
    }

    /// Returns the decision about a name, for which `fits` says whether a pattern permits it.
    pub(crate) fn decide(&self, fits: impl Fn(&HostPattern) -> bool) -> Decision {
        let mut rules = self.names.iter();
        let first = rules.find(|rule| rule.pattern.as_ref().is_none_or(&fits));
        first.map_or_else(|| self.decision_by_default(), |rule| rule.decision)
    }

    fn decision_by_default(&self) -> Decision {
        match self.default {
            EgressDefault::Deny => Decision::Refuse,
            EgressDefault::Public => Decision::Answer,
        }
    }
}

/// The group that allowed names belong to.
#[derive(Default)]
struct Group {
    number: usize,
    has_names: bool,
    /// Of all name rules so far.
    hasher: DefaultHasher,
}

impl Group {
    fn begin(&mut self) -> usize {
        self.has_names = true;
        self.number
    }

    /// Adds the part for the names of this group, if it has any, and begins the next one.
    fn end(&mut self, parts: &mut Vec<Part>) {
        if !self.has_names {
            return;
        }
        // Never 0, which means unmarked, nor one of the upper half, which the rules use themselves.
        let mark = u32::try_from(self.hasher.finish() >> 33).unwrap_or(0).max(1);
        parts.push(Part::Learned { group: self.number, mark });
        self.number += 1;
        self.has_names = false;
    }
}

#[cfg(test)]
mod tests {
    use dorm_lifecycle::{EgressRule, EgressRules};

    use super::*;

    fn rules(given: &[&str], default: EgressDefault) -> Policy {
        let rule = |text: &&str| {
            let (word, to) = text.split_once(' ').unwrap();
            let verdict = if word == "allow" { Verdict::Allow } else { Verdict::Deny };
            EgressRule { verdict, to: to.to_owned() }
        };
        let egress =
            Egress::Rules(EgressRules { rules: given.iter().map(rule).collect(), default, headers: Vec::new() });
        egress.check().unwrap();
        Policy::of(&egress).unwrap()
    }

    fn decide(policy: &Policy, name: &str) -> Decision {
        let labels: Vec<&[u8]> = name.split('.').map(str::as_bytes).collect();
        policy.decide(|pattern| pattern.permits(labels.iter().copied()))
    }

    #[test]
    fn the_first_rule_for_a_name_decides_about_it() {
        let policy = rules(&["deny www.a.test", "allow *.a.test", "allow b.test"], EgressDefault::Deny);
        assert_eq!(decide(&policy, "www.a.test"), Decision::Refuse);
        assert_eq!(decide(&policy, "x.a.test"), Decision::Learn(0));
        assert_eq!(decide(&policy, "b.test"), Decision::Learn(0));
        assert_eq!(decide(&policy, "c.test"), Decision::Refuse);
        assert_eq!(policy.decision_for_all(), None);
        let policy = rules(&["deny www.a.test"], EgressDefault::Public);
        assert_eq!(decide(&policy, "www.a.test"), Decision::Refuse);
        assert_eq!(decide(&policy, "c.test"), Decision::Answer);
    }

    #[test]
    fn a_rule_for_every_address_decides_about_every_name_too() {
        let policy = rules(&["allow a.test", "deny 0.0.0.0/0"], EgressDefault::Public);
        assert_eq!(decide(&policy, "a.test"), Decision::Learn(0));
        assert_eq!(decide(&policy, "b.test"), Decision::Refuse);
        assert_eq!(rules(&["allow 0.0.0.0/0"], EgressDefault::Deny).decision_for_all(), Some(Decision::Answer));
        assert_eq!(rules(&["deny 1.1.1.1"], EgressDefault::Public).decision_for_all(), Some(Decision::Answer));
        assert_eq!(Policy::nothing().decision_for_all(), Some(Decision::Refuse));
    }

    #[test]
    fn names_on_two_sides_of_a_denied_network_are_learned_apart() {
        let policy = rules(&["allow a.test", "deny 1.0.0.0/8", "allow b.test", "allow 2.2.2.2"], EgressDefault::Deny);
        assert_eq!(decide(&policy, "a.test"), Decision::Learn(0));
        assert_eq!(decide(&policy, "b.test"), Decision::Learn(1));
        let kinds: Vec<_> = policy
            .parts
            .iter()
            .map(|part| match part {
                Part::Allow(_) => "allow".to_owned(),
                Part::Deny(_) => "deny".to_owned(),
                Part::Learned { group, .. } => format!("learned {group}"),
            })
            .collect();
        assert_eq!(kinds, ["learned 0", "deny", "allow", "learned 1"]);
    }

    #[test]
    fn connections_by_name_are_marked_by_the_rules_for_names() {
        let marks = |policy: &Policy| -> Vec<u32> {
            policy
                .parts
                .iter()
                .filter_map(|part| if let Part::Learned { mark, .. } = part { Some(*mark) } else { None })
                .collect()
        };
        let list = |entries: &[&str]| {
            marks(&Policy::of(&Egress::Allow(entries.iter().map(|&entry| entry.to_owned()).collect())).unwrap())
        };
        assert_eq!(list(&["a.test", "b.test"]), list(&["b.test", "A.test.", "10.0.0.0/8", "a.test"]));
        assert_ne!(list(&["a.test"]), list(&["*.a.test"]));
        let deny = EgressDefault::Deny;
        assert_eq!(marks(&rules(&["allow a.test"], deny)), marks(&rules(&["deny 1.1.1.1", "allow a.test"], deny)));
        assert_ne!(marks(&rules(&["allow *.test"], deny)), marks(&rules(&["deny a.test", "allow *.test"], deny)));
    }
}
