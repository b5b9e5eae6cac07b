//! Names of services.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::guest::legible;

/// A text that is not the name of a service.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "'{0}' is not the name of a service: use 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
)]
pub struct ServiceNameError(String);

/// The name of a service: 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or
/// digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(String);

impl ServiceName {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ServiceName {
    type Error = ServiceNameError;

    fn try_from(text: String) -> Result<Self, ServiceNameError> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins_well && text.len() <= 64 && text.bytes().all(is_fine) {
            return Ok(Self(text));
        }
        Err(ServiceNameError(legible(&text)))
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceName;

    #[test]
    fn a_name_can_be_a_part_of_a_path() {
        for name in ["web", "a", "9", "A.b_c-d"] {
            assert!(ServiceName::try_from(name.to_owned()).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(ServiceName::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
