//! The destinations of egress: IPv4 networks, and patterns for host names.

use std::str::FromStr;

use thiserror::Error;

use super::network::Network;

/// The longest host name in DNS, without the trailing dot.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// The destinations that one entry of an egress list, or one rule, names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EgressTarget {
    /// Every address of an IPv4 network.
    Network(Network),
    /// The public addresses that a host name resolves to.
    Host(HostPattern),
}

/// An entry of an egress list is neither a network nor a host name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "'{0}' is not a valid egress entry: give an IPv4 network, such as 198.51.100.0/24, or a host name, such as example.com or *.example.com"
)]
pub struct EgressTargetError(pub String);

impl FromStr for EgressTarget {
    type Err = EgressTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = network(text).or_else(|| HostPattern::parse(text).map(Self::Host));
        rule.ok_or_else(|| EgressTargetError(text.to_owned()))
    }
}

fn network(text: &str) -> Option<EgressTarget> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    Some(EgressTarget::Network(Network::new(address.parse().ok()?, length.parse().ok()?)?))
}

/// A pattern for host names: `example.com` is that name only, `*.example.com` every name below it
/// but not the name itself, and `*` every name. A name of a single label ends with a dot, such as
/// `intranet.`, so that a mistyped word is not accepted as a name. Names beyond ASCII are written
/// as in DNS (`xn--…`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostPattern {
    /// The labels in lower case, in the order as written.
    labels: Vec<String>,
    span: Span,
}

/// The names that a pattern covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Span {
    /// The name itself.
    Exact,
    /// Every name below it.
    Below,
}

impl HostPattern {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self { labels: Vec::new(), span: Span::Below });
        }
        let (name, span) = text.strip_prefix("*.").map_or((text, Span::Exact), |rest| (rest, Span::Below));
        let bare = name.strip_suffix('.').unwrap_or(name);
        let labels: Vec<String> = bare.split('.').map(str::to_ascii_lowercase).collect();
        // A last label of digits would be a mistyped address: no top-level domain is a number.
        let is_number = labels.last().is_none_or(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
        let is_word = labels.len() == 1 && bare == text;
        let legal = bare.len() <= NAME_MAX && labels.iter().all(|label| is_label(label));
        (legal && !is_number && !is_word).then_some(Self { labels, span })
    }

    /// Returns whether it covers every name.
    pub(super) fn is_every_name(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns whether the pattern permits the host name `name`, with or without its trailing dot.
    pub fn permits_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        let labels: Vec<&[u8]> = name.split('.').map(str::as_bytes).collect();
        self.permits(labels.into_iter())
    }

    /// Returns whether every name that `other` covers is covered by this pattern.
    pub fn covers(&self, other: &Self) -> bool {
        let below = self.labels.len() <= other.labels.len() && other.labels.ends_with(&self.labels);
        match (self.span, other.span) {
            (Span::Exact, Span::Exact) => self.labels == other.labels,
            (Span::Exact, Span::Below) => false,
            (Span::Below, Span::Exact) => below && self.labels.len() < other.labels.len(),
            (Span::Below, Span::Below) => below,
        }
    }

    /// Returns whether the pattern permits the name with these labels, the first being the host's.
    /// Case is ignored.
    pub fn permits<'a>(&self, name: impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator) -> bool {
        let fits = match self.span {
            Span::Exact => name.len() == self.labels.len(),
            Span::Below => name.len() > self.labels.len(),
        };
        fits && self.labels.iter().rev().zip(name.rev()).all(|(own, other)| own.as_bytes().eq_ignore_ascii_case(other))
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.labels.join(".");
        match self.span {
            Span::Exact if self.labels.len() == 1 => write!(f, "{name}."),
            Span::Exact => f.write_str(&name),
            Span::Below if self.labels.is_empty() => f.write_str("*"),
            Span::Below => write!(f, "*.{name}"),
        }
    }
}

fn is_label(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !label.is_empty()
        && label.len() <= LABEL_MAX
        && label.bytes().all(plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(pattern: &str, name: &str) -> bool {
        let Ok(EgressTarget::Host(pattern)) = pattern.parse() else { panic!("{pattern} is no host name") };
        pattern.permits(name.split('.').map(str::as_bytes).collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn networks_and_names_are_distinguished() {
        assert_eq!(
            "198.51.100.7/24".parse(),
            Ok(EgressTarget::Network(Network::new([198, 51, 100, 7].into(), 24).unwrap()))
        );
        assert_eq!("10.0.0.1".parse(), Ok(EgressTarget::Network(Network::new([10, 0, 0, 1].into(), 32).unwrap())));
        for name in ["example.com", "*.example.com", "Example.COM", "example.com.", "_dns.a-b.test", "intranet.", "*"] {
            assert!(matches!(name.parse(), Ok(EgressTarget::Host(_))), "{name}");
        }
    }

    #[test]
    fn an_entry_that_is_neither_is_refused() {
        let long = format!("{}.com", "a".repeat(64));
        let longer = format!("{}com", "a.".repeat(126));
        for wrong in [
            "",
            ".",
            "..",
            "some",
            "pubic",
            "*.",
            "*com",
            "a.*.com",
            "**.com",
            "exa mple.com",
            "example.com/24",
            "-a.com",
            "a-.com",
            "a..com",
            ".a.com",
            "1.2.3",
            "1.2.3.4.5",
            "256.0.0.1",
            "1.2.3.4/33",
            "::/0",
            "münchen.de",
            "example.com; flush ruleset",
            "example.com:443",
            "https://example.com",
            &long,
            &longer,
        ] {
            assert_eq!(wrong.parse::<EgressTarget>(), Err(EgressTargetError(wrong.to_owned())));
        }
    }

    #[test]
    fn a_name_permits_itself_and_a_star_what_is_below() {
        for (pattern, name, permitted) in [
            ("example.com", "example.com", true),
            ("example.com", "EXAMPLE.com", true),
            ("Example.Com.", "example.com", true),
            ("example.com", "www.example.com", false),
            ("example.com", "com", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("*.example.com", "www.example.com.attacker.test", false),
            ("*", "anything", true),
        ] {
            assert_eq!(permits(pattern, name), permitted, "{pattern} {name}");
        }
    }

    #[test]
    fn a_dot_inside_a_label_is_no_border_between_labels() {
        let Ok(EgressTarget::Host(pattern)) = "*.example.com".parse() else { panic!() };
        let forged: [&[u8]; 2] = [b"secret.example", b"com"];
        assert!(!pattern.permits(forged.into_iter()));
        let forged: [&[u8]; 1] = [b"secret.example.com"];
        assert!(!pattern.permits(forged.into_iter()));
    }

    #[test]
    fn a_pattern_covers_what_it_permits() {
        let pattern = |text: &str| {
            let Ok(EgressTarget::Host(pattern)) = text.parse() else { panic!("{text} is no host name") };
            pattern
        };
        for (wide, narrow, covered) in [
            ("example.com", "Example.com.", true),
            ("example.com", "www.example.com", false),
            ("example.com", "*.example.com", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "*.www.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.www.example.com", "*.example.com", false),
            ("*.example.com", "www.bexample.com", false),
            ("*", "*.example.com", true),
            ("*", "com.", true),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), covered, "{wide} {narrow}");
        }
    }
}
