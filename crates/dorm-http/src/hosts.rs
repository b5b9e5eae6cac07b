//! The host names that this server answers to.
//!
//! A foreign page can let its own host name resolve to this host (DNS rebinding), and its script
//! then has the origin of this server. So a request for any other name is refused before its key is
//! checked.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri, header};

/// The domain that is always served: browsers resolve it and its subdomains to this host.
pub(crate) const LOCAL: &str = "localhost";

/// Domains, each with all its subdomains.
#[derive(Clone, Debug)]
pub struct Domains(Vec<String>);

impl Default for Domains {
    /// Only `localhost`.
    fn default() -> Self {
        Self(vec![LOCAL.to_owned()])
    }
}

impl Domains {
    /// `localhost` and these.
    ///
    /// # Errors
    /// The first one that is not a domain: labels of letters, digits and hyphens, separated by
    /// dots.
    pub fn with(domains: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut known = Self::default();
        for domain in domains {
            let domain = domain.to_ascii_lowercase();
            let is_label = |label: &str| {
                (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            };
            if domain.len() > 253 || !domain.split('.').all(is_label) || domain.parse::<IpAddr>().is_ok() {
                return Err(domain);
            }
            known.0.push(domain);
        }
        Ok(known)
    }

    /// The domains.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Whether a request with this `Host` is answered. An address is accepted, since no page can
    /// make an address resolve elsewhere. So is a missing host, which no browser sends.
    pub fn answer_to(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.is_empty() || address.parse::<IpAddr>().is_ok() || self.of(host).is_some()
    }

    /// The domain that a host is in; `None` if it is in none.
    pub fn of(&self, host: &str) -> Option<&str> {
        let name = without_port(host);
        self.0.iter().map(String::as_str).find(|known| is_in(&name, known))
    }

    /// The first label of a host that is a domain with exactly one more label.
    pub fn label(&self, host: &str) -> Option<String> {
        let name = without_port(host);
        let below = |known: &String| name.strip_suffix(known.as_str())?.strip_suffix('.').map(str::to_owned);
        self.0.iter().filter_map(below).find(|label| !label.contains('.'))
    }
}

/// The host that a request is for: empty if it names none, and a host of no domain if it is not
/// readable.
pub fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> &'a str {
    match headers.get(header::HOST) {
        Some(value) => value.to_str().unwrap_or("?"),
        None => uri.host().unwrap_or(""),
    }
}

/// A `Host` header as its name and its port.
pub fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

fn is_in(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The name in a `Host` header without its port, in lower case.
fn without_port(host: &str) -> String {
    let (name, _) = split_port(host);
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_known_domains_are_answered_to() {
        let domains = Domains::with(["Sandboxes.Example.org".to_owned()]).unwrap();
        for (host, is_known) in [
            ("localhost:7070", true),
            ("8080-abc.localhost", true),
            ("LOCALHOST.", true),
            ("127.0.0.1:7070", true),
            ("[::1]:7070", true),
            ("[::1]", true),
            ("8080-abc.sandboxes.example.org:443", true),
            ("sandboxes.example.org", true),
            ("", true),
            ("example.org", false),
            ("evil.test", false),
            ("notlocalhost", false),
            ("localhost.evil.test:7070", false),
            ("127.0.0.1.evil.test", false),
        ] {
            assert_eq!(domains.answer_to(host), is_known, "{host}");
        }
        assert_eq!(domains.label("8080-ABC.localhost:1"), Some("8080-abc".to_owned()));
        assert_eq!(domains.label("8080-abc.sandboxes.example.org"), Some("8080-abc".to_owned()));
        assert_eq!(domains.of("8080-ABC.Sandboxes.example.org:443"), Some("sandboxes.example.org"));
        assert_eq!(domains.of("127.0.0.1:7070"), None);
        assert_eq!(split_port("a.localhost:1"), ("a.localhost", Some("1")));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        for host in ["localhost", "a.b.localhost", "8080-abc.evil.test", ""] {
            assert_eq!(domains.label(host), None, "{host}");
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for wrong in ["", "a..b", "a b", "127.0.0.1", "-é.org", "http://a.org", "a.org:80"] {
            assert_eq!(Domains::with([wrong.to_owned()]).unwrap_err(), wrong.to_ascii_lowercase());
        }
    }
}
