//! The header `WWW-Authenticate`, with which a registry requests authentication.

use std::collections::BTreeMap;

/// The requested authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Challenge {
    /// A name and a password with each request.
    Basic,
    /// A token, which the service at `realm` issues for these parameters.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// Parses the header; `None` for an unknown scheme.
pub(crate) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut parameters = parameters(rest);
    Some(Challenge::Bearer {
        realm: parameters.remove("realm")?,
        service: parameters.remove("service"),
        scope: parameters.remove("scope"),
    })
}

fn parameters(mut rest: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(name, value.to_owned());
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_with_commas_in_quotes() {
        let header = r#"Bearer realm="https://auth.x/token",service="reg.x",scope="repository:a/b:pull,push""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.x/token".into(),
            service: Some("reg.x".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(parse(header), Some(expected));
        assert_eq!(parse("basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(parse("Basic"), Some(Challenge::Basic));
        for bad in ["", "Digest a=b", "Bearer", "Bearer service=x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert!(parse("Bearer realm=\"unclosed").is_some());
    }
}
