//! The origins of web pages.

use std::str::FromStr;

use axum::http::{HeaderValue, Uri};

/// The origin of a web page: a scheme, a host and perhaps a port, such as
/// `https://app.example.org`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin(HeaderValue);

/// A text is not an origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not an origin such as https://app.example.org or http://localhost:5173")]
pub struct NotAnOrigin(String);

impl FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let wrong = || NotAnOrigin(text.to_owned());
        let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        // A browser names it in this form, which must be the same to the last letter.
        let is_exact = ["http", "https"].contains(&scheme)
            && uri.authority().is_some_and(|found| found.as_str() == authority)
            && !authority.bytes().any(|byte| byte == b'@' || byte.is_ascii_uppercase());
        match HeaderValue::from_str(text) {
            Ok(value) if is_exact => Ok(Self(value)),
            Ok(_) | Err(_) => Err(wrong()),
        }
    }
}

impl From<Origin> for HeaderValue {
    fn from(origin: Origin) -> Self {
        origin.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_port() {
        for text in ["https://app.example.org", "http://localhost:5173", "http://127.0.0.1:80", "http://[::1]:8080"] {
            assert_eq!(text.parse::<Origin>().map(HeaderValue::from), Ok(HeaderValue::from_static(text)));
        }
        for text in [
            "",
            "*",
            "null",
            "localhost",
            "ftp://host",
            "https://host/",
            "https://host/a",
            "https://HOST",
            "https://a@b",
        ] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
