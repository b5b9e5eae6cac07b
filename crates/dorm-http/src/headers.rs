//! Headers that may be sent once.

use axum::http::HeaderMap;
use axum::http::header::HeaderName;

/// A header that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// It is given more than once.
    #[error("the header {0} is given twice")]
    Repeated(HeaderName),
    /// Its value has other bytes than visible ASCII.
    #[error("the header {0} is not visible ASCII")]
    Unreadable(HeaderName),
}

impl HeaderError {
    /// The next step for the caller; empty if the message says it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Repeated(_) => "send it once",
            Self::Unreadable(_) => "",
        }
    }
}

/// The only value of a header; `None` without the header.
///
/// # Errors
/// [`HeaderError`] for a header that is repeated or not visible ASCII.
pub fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, HeaderError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        (Ok(_), Some(_)) => Err(HeaderError::Repeated(name.clone())),
        (Err(_), _) => Err(HeaderError::Unreadable(name.clone())),
    }
}
