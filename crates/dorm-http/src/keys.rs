//! API keys of the daemon's owner.

use std::fmt;

use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use subtle::{Choice, ConstantTimeEq};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys of the daemon's owner, each of which gives access to the whole API. They are never
/// printed. Keys created later belong to the service.
#[derive(Clone)]
pub struct Keys(Vec<String>);

impl Keys {
    /// Takes the keys. An empty key admits nobody.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().filter(|key| !key.is_empty()).collect())
    }

    /// Whether a request carries one of them, as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
    pub fn admit(&self, headers: &HeaderMap) -> bool {
        presented(headers).any(|key| self.knows(key))
    }

    /// Removes keys of this API, and those that `is_key` recognises, from headers that are passed
    /// on into a sandbox, where they must stay unknown.
    pub(crate) fn conceal(&self, headers: &mut HeaderMap, is_key: impl Fn(&[u8]) -> bool) {
        let is_ours = |key: &[u8]| self.knows(key) || is_key(key);
        if headers.get_all(API_KEY).iter().any(|key| is_ours(key.as_bytes())) {
            headers.remove(API_KEY);
        }
        if headers.get_all(header::AUTHORIZATION).iter().filter_map(bearer).any(is_ours) {
            headers.remove(header::AUTHORIZATION);
        }
    }

    fn knows(&self, key: &[u8]) -> bool {
        // Every key is compared in constant time, so that the duration does not show where they
        // differ.
        self.0.iter().fold(Choice::from(0), |found, known| found | known.as_bytes().ct_eq(key)).into()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

/// The keys that a request carries.
pub(crate) fn presented(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let plain = headers.get(API_KEY).map(HeaderValue::as_bytes);
    plain.into_iter().chain(headers.get(header::AUTHORIZATION).and_then(bearer))
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn only_a_known_key_opens() {
        let keys = Keys::new(["first".to_owned(), "second".to_owned(), String::new()]);
        for (name, value, opens) in [
            ("x-api-key", "first", true),
            ("authorization", "Bearer second", true),
            ("authorization", "bearer  second", true),
            ("x-api-key", "", false),
            ("x-api-key", "firs", false),
            ("x-api-key", "first2", false),
            ("authorization", "second", false),
            ("authorization", "Basic second", false),
            ("authorization", "Bearer ", false),
            ("cookie", "first", false),
        ] {
            assert_eq!(keys.admit(&headers(name, value)), opens, "{name}: {value}");
        }
        assert!(!Keys::new([]).admit(&headers("x-api-key", "")));
    }

    #[test]
    fn a_key_does_not_get_into_a_sandbox() {
        let keys = Keys::new(["ours".to_owned()]);
        for (name, value, stays) in [
            ("x-api-key", "ours", false),
            ("authorization", "Bearer ours", false),
            ("authorization", "Bearer made later", false),
            ("x-api-key", "theirs", true),
            ("authorization", "Bearer theirs", true),
            ("authorization", "Basic b3Vycw==", true),
        ] {
            let mut headers = headers(name, value);
            keys.conceal(&mut headers, |key| key == b"made later");
            assert_eq!(headers.contains_key(name), stays, "{name}: {value}");
        }
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", Keys::new(["hunter2".to_owned()])), "Keys(1)");
    }
}
