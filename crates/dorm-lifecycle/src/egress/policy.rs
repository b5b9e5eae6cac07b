//! A parsed egress policy: what it decides about an address and about a name.

use std::net::Ipv4Addr;

use super::network::{Network, is_public};
use super::target::{EgressTarget, EgressTargetError};
use super::{EgressDefault, Verdict};

/// A parsed egress policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressPolicy {
    /// The rules, in their order.
    pub rules: Vec<PolicyRule>,
    /// The decision about destinations that no rule matches.
    pub default: EgressDefault,
}

/// A parsed rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRule {
    /// Whether it allows or denies.
    pub verdict: Verdict,
    /// The destinations.
    pub to: EgressTarget,
}

impl PolicyRule {
    pub(super) fn parse(verdict: Verdict, to: &str) -> Result<Self, EgressTargetError> {
        Ok(Self { verdict, to: to.parse()? })
    }

    /// Returns whether it is the rule of every destination, by address or by name.
    fn is_of_all(&self) -> bool {
        matches!(self.to, EgressTarget::Network(network) if network == Network::ALL)
    }

    /// Returns whether it decides about `address`.
    fn matches(&self, address: Ipv4Addr) -> bool {
        self.ranges().iter().any(|(first, last)| (*first..=*last).contains(&u32::from(address)))
    }

    /// Returns the addresses that it decides about, as ranges. A rule that allows a network matches
    /// only the public addresses in it, unless the network is a part of one that is not public.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let EgressTarget::Network(network) = self.to else { return Vec::new() };
        let whole = vec![(network.first(), network.last())];
        match self.verdict {
            Verdict::Allow if network.is_mixed() => {
                Network::not_public().fold(whole, |left, other| without(&left, (other.first(), other.last())))
            }
            Verdict::Allow | Verdict::Deny => whole,
        }
    }
}

impl EgressPolicy {
    /// Returns whether a connection to `address` is allowed because of the address, whatever names
    /// were resolved.
    pub fn allows(&self, address: Ipv4Addr) -> bool {
        match self.rules.iter().find(|rule| rule.matches(address)) {
            Some(rule) => rule.verdict == Verdict::Allow,
            None => self.default == EgressDefault::Public && is_public(address),
        }
    }

    /// Returns whether the name resolves.
    pub fn resolves(&self, name: &str) -> bool {
        let decides = |rule: &&PolicyRule| match &rule.to {
            EgressTarget::Host(pattern) => pattern.permits_name(name),
            EgressTarget::Network(_) => rule.is_of_all(),
        };
        match self.rules.iter().find(decides) {
            Some(rule) => rule.verdict == Verdict::Allow,
            None => self.default == EgressDefault::Public,
        }
    }

    /// Returns whether a connection to the host `name` at `address` is allowed, if the name
    /// resolves to this address. Names alone allow only public addresses.
    pub fn allows_host(&self, name: &str, address: Ipv4Addr) -> bool {
        let decision = self.rules.iter().find_map(|rule| match &rule.to {
            EgressTarget::Network(_) => rule.matches(address).then_some(rule.verdict == Verdict::Allow),
            EgressTarget::Host(pattern) => {
                let allows = rule.verdict == Verdict::Allow && is_public(address) && pattern.permits_name(name);
                allows.then_some(true)
            }
        });
        let by_default = self.default == EgressDefault::Public && is_public(address);
        self.resolves(name) && decision.unwrap_or(by_default)
    }

    /// Returns the first rule that can never match, and the earlier rule that alone covers it, if
    /// there is one.
    pub(super) fn first_that_never_matches(&self) -> Option<(usize, Option<usize>)> {
        let mut matched: Vec<(u32, u32)> = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let earlier = &self.rules[..at];
            let own = rule.ranges();
            let alone = earlier.iter().position(|other| covers(other, rule));
            let is_matched = match rule.to {
                EgressTarget::Host(_) => alone.is_some(),
                EgressTarget::Network(_) => {
                    let left = matched.iter().fold(own.clone(), |left, range| without(&left, *range));
                    // A rule of all destinations also decides about names.
                    left.is_empty() && (!rule.is_of_all() || alone.is_some())
                }
            };
            if is_matched {
                return Some((at, alone));
            }
            matched.extend(own);
        }
        None
    }
}

/// Returns whether the rule `wide` matches everything that `narrow` does.
fn covers(wide: &PolicyRule, narrow: &PolicyRule) -> bool {
    match (&wide.to, &narrow.to) {
        (_, EgressTarget::Host(_)) if wide.is_of_all() => true,
        (EgressTarget::Host(wide), EgressTarget::Host(narrow)) => wide.covers(narrow),
        (EgressTarget::Network(_), EgressTarget::Network(_)) => {
            let left = wide.ranges().iter().fold(narrow.ranges(), |left, range| without(&left, *range));
            left.is_empty()
        }
        (EgressTarget::Host(_), EgressTarget::Network(_)) | (EgressTarget::Network(_), EgressTarget::Host(_)) => false,
    }
}

/// Returns the parts of `ranges` that are not in `gone`. The ends of a range belong to it.
fn without(ranges: &[(u32, u32)], gone: (u32, u32)) -> Vec<(u32, u32)> {
    let mut left = Vec::new();
    for &(first, last) in ranges {
        if gone.1 < first || last < gone.0 {
            left.push((first, last));
            continue;
        }
        if first < gone.0 {
            left.push((first, gone.0 - 1));
        }
        if gone.1 < last {
            left.push((gone.1 + 1, last));
        }
    }
    left
}
