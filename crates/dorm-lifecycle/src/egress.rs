//! Egress policy: where a sandbox can connect to.
//!
//! ```text
//! public ──────── no rule, and by default the public internet
//! allow list ──── a rule for each entry, and by default nothing
//! rules ───────── allow and deny, the first that matches decides, then the default
//! none ────────── no network device: nothing can be allowed later
//! ```
//!
//! A network rule matches addresses, a name rule the names that the sandbox resolves. A rule that
//! allows a network which is not itself a part of a private network allows only its public
//! addresses, so that no wide rule opens the host's surroundings by accident. The addresses of a
//! name are never allowed beyond the public ones.

mod headers;
mod network;
mod policy;
mod target;

use thiserror::Error;

use crate::ids::ProjectId;

pub use headers::{HEADER_RULES_MAX, HTTPS_PORT, HeaderError, HeaderRule, ParsedHeader};
pub use network::{Network, is_public};
pub use policy::{EgressPolicy, PolicyRule};
pub use target::{EgressTarget, EgressTargetError, HostPattern};

/// The maximum number of rules of one sandbox.
pub const EGRESS_RULES_MAX: usize = 256;

/// The egress policy of a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Egress {
    /// The internet without private and link-local addresses; every name resolves. The default.
    #[default]
    Public,
    /// No network device. It can be neither added to a sandbox nor removed from one.
    None,
    /// Only these entries, each an [`EgressTarget`]: IPv4 networks in CIDR notation and host names.
    /// No other name resolves.
    Allow(Vec<String>),
    /// Ordered rules.
    Rules(EgressRules),
}

/// Ordered rules for the connections of a sandbox: the first that matches decides, and then the
/// default.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EgressRules {
    /// The rules.
    pub rules: Vec<EgressRule>,
    /// The decision about destinations that no rule matches.
    pub default: EgressDefault,
    /// Headers that are added to HTTPS requests outside of the sandbox. They allow nothing.
    pub headers: Vec<HeaderRule>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EgressRule {
    /// Whether it allows or denies.
    pub verdict: Verdict,
    /// The destinations: an [`EgressTarget`] as text.
    pub to: String,
}

impl std::fmt::Display for EgressRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.verdict.as_str(), self.to)
    }
}

/// The decision of a rule about the connections that it matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// They are allowed.
    Allow,
    /// They are refused.
    Deny,
}

impl Verdict {
    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The decision about destinations that no rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EgressDefault {
    /// They are refused, and no other name resolves. The default.
    #[default]
    Deny,
    /// Public addresses are allowed, and every other name resolves.
    Public,
}

/// An egress policy is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EgressError {
    /// An entry or a rule names neither a network nor a host name.
    #[error(transparent)]
    Target(#[from] EgressTargetError),
    /// A header rule is invalid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// There are too many rules.
    #[error("{0} egress rules are too many: the maximum is {EGRESS_RULES_MAX}")]
    TooMany(usize),
    /// A rule can never match, and so contradicts or repeats earlier rules.
    #[error(
        "the egress rule '{rule}' can never match, because earlier rules{} match all of its destinations: remove it or move it up",
        .by.as_ref().map_or_else(String::new, |by| format!(" ('{by}')"))
    )]
    NeverMatches {
        /// The rule.
        rule: String,
        /// The one earlier rule that covers it, if a single one does.
        by: Option<String>,
    },
}

impl Egress {
    /// Returns a policy that allows nothing, but can be changed later.
    pub fn closed() -> Self {
        Self::Rules(EgressRules::default())
    }

    /// Returns whether a sandbox with this policy has a network device.
    pub const fn has_device(&self) -> bool {
        match self {
            Self::None => false,
            Self::Public | Self::Allow(_) | Self::Rules(_) => true,
        }
    }

    /// Rejects an invalid policy.
    ///
    /// # Errors
    ///
    /// Names the first wrong entry or rule.
    pub fn check(&self) -> Result<(), EgressError> {
        let policy = self.policy()?;
        let Self::Rules(EgressRules { rules, headers, .. }) = self else { return Ok(()) };
        if rules.len() > EGRESS_RULES_MAX {
            return Err(EgressError::TooMany(rules.len()));
        }
        let Some((at, by)) = policy.first_that_never_matches() else {
            return Ok(headers::check(headers, &policy)?);
        };
        let word = |at: usize| rules.get(at).map(EgressRule::to_string);
        Err(EgressError::NeverMatches { rule: word(at).unwrap_or_default(), by: by.and_then(word) })
    }

    /// Returns the policy as parsed rules, whatever its form.
    ///
    /// # Errors
    ///
    /// Names the first entry or rule that names neither a network nor a host name.
    pub fn policy(&self) -> Result<EgressPolicy, EgressTargetError> {
        let (rules, default) = match self {
            Self::Public => (Vec::new(), EgressDefault::Public),
            Self::None => (Vec::new(), EgressDefault::Deny),
            Self::Allow(entries) => {
                let parsed = entries.iter().map(|entry| PolicyRule::parse(Verdict::Allow, entry));
                (parsed.collect::<Result<_, _>>()?, EgressDefault::Deny)
            }
            Self::Rules(EgressRules { rules, default, .. }) => {
                let parsed = rules.iter().map(|rule| PolicyRule::parse(rule.verdict, &rule.to));
                (parsed.collect::<Result<_, _>>()?, *default)
            }
        };
        Ok(EgressPolicy { rules, default })
    }

    /// Returns the header rules.
    pub fn headers(&self) -> &[HeaderRule] {
        match self {
            Self::Rules(EgressRules { headers, .. }) => headers,
            Self::Public | Self::None | Self::Allow(_) => &[],
        }
    }

    /// Returns the same policy with the secrets of this project.
    pub fn of_project(mut self, project: &ProjectId) -> Self {
        if let Self::Rules(EgressRules { headers, .. }) = &mut self {
            headers.iter_mut().for_each(|header| header.project = project.clone());
        }
        self
    }

    /// Returns the policy in a few words, for events.
    pub fn summary(&self) -> String {
        let rules = self.summary_of_rules();
        match self.headers().len() {
            0 => rules,
            1 => format!("{rules}, and 1 header rule"),
            count => format!("{rules}, and {count} header rules"),
        }
    }

    fn summary_of_rules(&self) -> String {
        match self {
            Self::Public => "public".to_owned(),
            Self::None => "none".to_owned(),
            Self::Allow(entries) => format!("a list of {} entries", entries.len()),
            Self::Rules(EgressRules { rules, default, .. }) => match (rules.len(), default) {
                (0, EgressDefault::Deny) => "closed".to_owned(),
                (0, EgressDefault::Public) => "public".to_owned(),
                (count, EgressDefault::Deny) => format!("{count} rules, by default closed"),
                (count, EgressDefault::Public) => format!("{count} rules, by default public"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
