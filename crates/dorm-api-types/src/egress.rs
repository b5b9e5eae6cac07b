//! Where sandboxes may connect to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a sandbox may connect to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    /// Public internet addresses, never private or link-local ones. Every name resolves.
    Public,
    /// Nowhere. No name resolves. Can be changed later, also while the sandbox runs.
    Closed,
    /// No network device. Can never be changed.
    None,
    /// Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host
    /// names: `example.com` for one name, `*.example.com` for every name below it, or `*` for every
    /// name. No other name resolves. A network that is not itself part of a private network stands
    /// for its public addresses only.
    Allow(Vec<String>),
    /// Rules in their order.
    Ordered(EgressRules),
}

/// Ordered rules: the first that matches a connection or a name decides about it, then `default`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressRules {
    /// The rules, 256 at most. A rule that can never match is refused.
    pub rules: Vec<EgressRule>,
    /// Decision if no rule matches. Default: `deny`.
    #[serde(default)]
    pub default: EgressDefault,
    /// Headers that are added to HTTPS requests outside of the sandbox, 64 rules at most. The
    /// egress rules must allow their hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderRule>,
}

/// A header that is set in HTTPS requests, outside of the sandbox. The first rule for a host, port
/// and header counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// Host name: `example.com`, or `*.example.com` for every name below it.
    pub host: String,
    /// Port. Default: 443.
    #[serde(default = "https")]
    pub port: u16,
    /// Name of the header.
    pub name: String,
    /// Value, with the name of one secret of the project in braces, such as `Bearer {API_KEY}`.
    pub value: String,
}

/// The port of HTTPS.
const fn https() -> u16 {
    443
}

/// A rule. Its text is an IPv4 network, such as `198.51.100.0/24`, or a host name: `example.com`,
/// `*.example.com` or `*`. The network `0.0.0.0/0` also stands for every name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EgressRule {
    /// Allows connections to the network, or to the public addresses that the name resolves to. A
    /// network that is not itself part of a private network stands for its public addresses only.
    Allow(String),
    /// Refuses connections to the network. A denied name does not resolve.
    Deny(String),
}

/// Decision about connections and names that no rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EgressDefault {
    /// They are refused.
    #[default]
    Deny,
    /// Public addresses can be reached, and names resolve.
    Public,
}

/// Change the egress policy of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetEgress {
    /// The new policy, which replaces the present one as a whole.
    pub egress: Egress,
}
