//! Header rules: the headers that are added to the HTTPS requests of a sandbox outside of it, with
//! a secret of its project in their value. The sandbox never has the value.

use thiserror::Error;

use super::policy::{EgressPolicy, PolicyRule};
use super::target::{EgressTarget, HostPattern};
use super::{EgressDefault, Verdict};
use crate::ids::{IdError, ProjectId, SecretName};

/// The maximum number of header rules of one sandbox.
pub const HEADER_RULES_MAX: usize = 64;
/// The port of HTTPS, which a rule is about unless it names another.
pub const HTTPS_PORT: u16 = 443;
const NAME_MAX: usize = 64;
const VALUE_MAX: usize = 1024;
/// The port for DNS, on which the connections of a sandbox never leave its gateway.
const DNS_PORT: u16 = 53;

/// Headers that describe the connection or the message, not the request. Another value would break
/// or confuse one of them.
const RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// One header rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HeaderRule {
    /// The hosts: `example.com`, or `*.example.com` for every name below it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of the header.
    pub name: String,
    /// Its value, with the name of one secret in braces, such as `Bearer {TOKEN}`.
    pub value: String,
    /// The project whose secret it is: that of the sandbox.
    pub project: ProjectId,
}

impl std::fmt::Display for HeaderRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, name, value, project: _ } = self;
        match *port {
            HTTPS_PORT => write!(f, "{host}: {name}: {value}"),
            port => write!(f, "{host}:{port}: {name}: {value}"),
        }
    }
}

/// A parsed header rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedHeader {
    /// The hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
    /// The name of the header, in lower case.
    pub name: String,
    /// The text before the secret.
    pub before: String,
    /// The secret.
    pub secret: SecretName,
    /// The text after the secret.
    pub after: String,
    /// The project whose secret it is.
    pub project: ProjectId,
}

impl ParsedHeader {
    /// Returns whether it is about requests to this host and port.
    pub fn is_about(&self, name: &str, port: u16) -> bool {
        self.port == port && self.host.permits_name(name)
    }
}

/// A header rule is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HeaderError {
    /// There are too many rules.
    #[error("{0} header rules are too many: the maximum is {HEADER_RULES_MAX}")]
    TooMany(usize),
    /// The host is not a host name.
    #[error("the header rule '{0}' names no host: give a name such as api.example.com or *.example.com")]
    Host(String),
    /// The rule is about every host.
    #[error("the header rule '{0}' would send its secret to every host: name the hosts that may have it")]
    EveryHost(String),
    /// The port cannot carry HTTPS.
    #[error("the header rule '{0}' has a port that cannot be used for HTTPS: give another, or none for {HTTPS_PORT}")]
    Port(String),
    /// The name of the header is invalid.
    #[error(
        "the header rule '{0}' has no valid header name: use at most {NAME_MAX} letters, digits and hyphens, such as \
         Authorization"
    )]
    Name(String),
    /// The header must not be set by a rule.
    #[error(
        "the header rule '{rule}' sets '{name}', which belongs to the connection or the message: set another header"
    )]
    Reserved {
        /// The rule.
        rule: String,
        /// The header.
        name: String,
    },
    /// The value does not contain exactly one secret.
    #[error(
        "the header rule '{0}' must contain the name of exactly one secret in braces, as in 'Bearer {{API_KEY}}', and no \
         other brace"
    )]
    Secret(String),
    /// The name in braces is not that of a secret.
    #[error("the header rule '{rule}' names no secret")]
    SecretName {
        /// The rule.
        rule: String,
        /// The reason.
        #[source]
        source: IdError,
    },
    /// The value has characters that a header cannot have.
    #[error(
        "the header rule '{0}' has a value that no header can have: use at most {VALUE_MAX} printable ASCII characters, \
         without a space at either end"
    )]
    Value(String),
    /// An earlier rule sets the same header for the same hosts.
    #[error(
        "the header rule '{rule}' never applies, because '{by}' sets the same header before it: remove one of them"
    )]
    Repeated {
        /// The rule.
        rule: String,
        /// The earlier one.
        by: String,
    },
    /// The egress rules let no connection to its hosts through.
    #[error(
        "the header rule '{rule}' never applies, because the egress rules do not allow its host ({}): allow it first",
        .by.as_ref().map_or_else(|| "the default is to deny".to_owned(), |by| format!("'{by}'"))
    )]
    HostDenied {
        /// The rule.
        rule: String,
        /// The egress rule that denies it; none for the default.
        by: Option<String>,
    },
}

impl HeaderRule {
    /// Parses the rule.
    ///
    /// # Errors
    ///
    /// Names the rule and its first defect.
    pub fn parsed(&self) -> Result<ParsedHeader, HeaderError> {
        let rule = || self.printable();
        let Ok(EgressTarget::Host(host)) = self.host.parse::<EgressTarget>() else {
            return Err(HeaderError::Host(rule()));
        };
        if host.is_every_name() {
            return Err(HeaderError::EveryHost(rule()));
        }
        if [0, DNS_PORT].contains(&self.port) {
            return Err(HeaderError::Port(rule()));
        }
        let name = self.name.to_ascii_lowercase();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(plain) {
            return Err(HeaderError::Name(rule()));
        }
        if RESERVED.contains(&name.as_str()) || name.starts_with("sec-websocket-") {
            return Err(HeaderError::Reserved { rule: rule(), name });
        }
        let printable = self.value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !printable || self.value.len() > VALUE_MAX || self.value.trim() != self.value {
            return Err(HeaderError::Value(rule()));
        }
        let parts = self.value.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        let Some((before, (secret, after))) = parts else { return Err(HeaderError::Secret(rule())) };
        if [before, secret, after].iter().any(|part| part.contains(['{', '}'])) {
            return Err(HeaderError::Secret(rule()));
        }
        let secret = secret.parse().map_err(|source| HeaderError::SecretName { rule: rule(), source })?;
        let (before, after) = (before.to_owned(), after.to_owned());
        Ok(ParsedHeader { host, port: self.port, name, before, secret, after, project: self.project.clone() })
    }

    /// Returns the rule for messages, without control characters, and without a value that may be a
    /// secret itself.
    fn printable(&self) -> String {
        let text = format!("{}: {}", self.host, self.name);
        text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
    }
}

/// Rejects header rules that are invalid or cannot apply under the policy.
pub(super) fn check(headers: &[HeaderRule], policy: &EgressPolicy) -> Result<(), HeaderError> {
    if headers.len() > HEADER_RULES_MAX {
        return Err(HeaderError::TooMany(headers.len()));
    }
    let mut earlier: Vec<(&HeaderRule, ParsedHeader)> = Vec::new();
    for rule in headers {
        let parsed = rule.parsed()?;
        let repeats = |(_, other): &&(&HeaderRule, ParsedHeader)| {
            other.name == parsed.name && other.port == parsed.port && other.host.covers(&parsed.host)
        };
        if let Some((by, _)) = earlier.iter().find(repeats) {
            return Err(HeaderError::Repeated { rule: rule.to_string(), by: by.to_string() });
        }
        if let Some(by) = denied(&parsed.host, policy) {
            return Err(HeaderError::HostDenied { rule: rule.to_string(), by });
        }
        earlier.push((rule, parsed));
    }
    Ok(())
}

/// Returns what denies every host of a pattern: a rule, or the default (`None` inside).
fn denied(host: &HostPattern, policy: &EgressPolicy) -> Option<Option<String>> {
    for PolicyRule { verdict, to } in &policy.rules {
        let (covers, meets, text) = match to {
            EgressTarget::Host(pattern) => (pattern.covers(host), host.covers(pattern), pattern.to_string()),
            EgressTarget::Network(network) if *network == super::Network::ALL => (true, true, network.to_string()),
            EgressTarget::Network(_) => continue,
        };
        match verdict {
            Verdict::Allow if covers || meets => return None,
            Verdict::Deny if covers => return Some(Some(format!("deny {text}"))),
            Verdict::Allow | Verdict::Deny => {}
        }
    }
    match policy.default {
        EgressDefault::Public => None,
        EgressDefault::Deny => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Egress, EgressError, EgressRule, EgressRules};
    use super::*;

    fn header(host: &str, name: &str, value: &str) -> HeaderRule {
        let (name, value) = (name.to_owned(), value.to_owned());
        HeaderRule { host: host.to_owned(), port: HTTPS_PORT, name, value, project: ProjectId::local() }
    }

    fn checked(rules: &[(Verdict, &str)], default: EgressDefault, headers: &[HeaderRule]) -> Result<(), HeaderError> {
        let rules = rules.iter().map(|(verdict, to)| EgressRule { verdict: *verdict, to: (*to).to_owned() }).collect();
        match Egress::Rules(EgressRules { rules, default, headers: headers.to_vec() }).check() {
            Err(EgressError::Header(error)) => Err(error),
            Ok(()) => Ok(()),
            Err(other) => panic!("{other}"),
        }
    }

    fn public(headers: &[HeaderRule]) -> Result<(), HeaderError> {
        checked(&[], EgressDefault::Public, headers)
    }

    #[test]
    fn a_rule_has_a_host_a_header_and_one_secret() {
        let parsed = header("*.Example.com", "X-Api-Key", "key={KEY_1};").parsed().unwrap();
        let shown = (parsed.name.as_str(), parsed.before.as_str(), parsed.secret.as_str(), parsed.after.as_str());
        assert_eq!(shown, ("x-api-key", "key=", "KEY_1", ";"));
        assert_eq!(header("a.test", "Authorization", "Bearer {T}").to_string(), "a.test: Authorization: Bearer {T}");
        let other = HeaderRule { port: 8443, ..header("a.test", "A", "{T}") };
        assert_eq!(other.to_string(), "a.test:8443: A: {T}");
        assert_eq!(public(&[header("a.test", "A", "{T}"), other]), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let error = |rule: HeaderRule| public(&[rule]).unwrap_err();
        for host in ["", "some", "1.2.3.4", "10.0.0.0/8", "a.test:443", "https://a.test"] {
            assert!(matches!(error(header(host, "A", "{T}")), HeaderError::Host(_)), "{host}");
        }
        assert!(matches!(error(header("*", "A", "{T}")), HeaderError::EveryHost(_)));
        for name in ["", "a b", "a:b", "ä", "a\r\nb", &"a".repeat(65)] {
            assert!(matches!(error(header("a.test", name, "{T}")), HeaderError::Name(_)), "{name}");
        }
        for name in ["Host", "content-length", "Connection", "Transfer-Encoding", "Upgrade", "Sec-WebSocket-Key"] {
            assert!(matches!(error(header("a.test", name, "{T}")), HeaderError::Reserved { .. }), "{name}");
        }
        for value in ["", "Bearer", "{A}{B}", "{", "}", "}{", "{A}}", "{{A}", "{A} {"] {
            assert!(matches!(error(header("a.test", "A", value)), HeaderError::Secret(_)), "{value}");
        }
        for value in ["{}", "{1A}", "{a b}", "{a-b}", "{ä}"] {
            let refused = error(header("a.test", "A", value));
            assert!(matches!(refused, HeaderError::SecretName { .. } | HeaderError::Value(_)), "{value}");
        }
        for value in [" {A}", "{A} ", "a\r\nB: {A}", "{A}\0", "\u{e9}{A}"] {
            let refused = error(header("a.test", "A", value));
            assert!(matches!(refused, HeaderError::Value(_)), "{value}");
            assert!(!refused.to_string().contains(['\r', '\n', '\0']));
        }
        let typed = error(header("a.test", "Authorization", "Bearer hunter2")).to_string();
        assert!(typed.contains("a.test: Authorization") && !typed.contains("hunter2"), "{typed}");
        for port in [0, 53] {
            assert!(matches!(error(HeaderRule { port, ..header("a.test", "A", "{T}") }), HeaderError::Port(_)));
        }
        let many: Vec<_> = (0..=64).map(|number| header("a.test", &format!("A{number}"), "{T}")).collect();
        assert_eq!(public(&many), Err(HeaderError::TooMany(65)));
        assert_eq!(public(&many[1..]), Ok(()));
    }

    #[test]
    fn a_header_is_set_once() {
        let repeated = |first: &str, second: &str| {
            public(&[header(first, "Authorization", "{A}"), header(second, "authorization", "{B}")]).is_err()
        };
        assert!(repeated("a.test", "A.test."));
        assert!(repeated("*.a.test", "www.a.test"));
        assert!(!repeated("www.a.test", "*.a.test"), "the first that matches decides");
        assert!(!repeated("*.a.test", "a.test"));
        assert_eq!(public(&[header("a.test", "A", "{T}"), header("a.test", "B", "{T}")]), Ok(()));
    }

    #[test]
    fn a_host_that_the_network_denies_is_refused() {
        let rule = [header("api.a.test", "A", "{T}")];
        let (allow, deny) = (Verdict::Allow, Verdict::Deny);
        let denied = |rules: &[(Verdict, &str)], default| match checked(rules, default, &rule) {
            Err(HeaderError::HostDenied { by, .. }) => Some(by),
            other => other.map(|()| None).unwrap(),
        };
        assert_eq!(denied(&[], EgressDefault::Deny), Some(None));
        assert_eq!(denied(&[(deny, "*.a.test")], EgressDefault::Public), Some(Some("deny *.a.test".to_owned())));
        assert_eq!(denied(&[(deny, "0.0.0.0/0")], EgressDefault::Public), Some(Some("deny 0.0.0.0/0".to_owned())));
        assert_eq!(denied(&[(allow, "api.a.test"), (deny, "0.0.0.0/0")], EgressDefault::Public), None);
        assert_eq!(denied(&[(allow, "0.0.0.0/0")], EgressDefault::Deny), None);
        assert_eq!(denied(&[(deny, "10.0.0.0/8")], EgressDefault::Public), None);
        let wide = [header("*.a.test", "A", "{T}")];
        assert_eq!(checked(&[(allow, "api.a.test")], EgressDefault::Deny, &wide), Ok(()));
    }
}
