//! Callers: who sent the request that led to a change.
//!
//! A caller is recorded with what it asked for and never changes afterwards, so it also names a key
//! that was removed since. It holds ids and names, and nothing that admits.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::ids::{ApiKeyId, IdError};

/// The longest id of a door, in bytes.
const DOOR_BYTES_MAX: usize = 16;

/// The id of a door: of the API through which a request came, such as `api`. Each door has its own
/// and knows it alone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DoorId(Cow<'static, str>);

impl DoorId {
    /// Makes the id of a door of this program. In a constant, an invalid one does not compile.
    pub const fn known(text: &'static str) -> Self {
        assert!(is_door(text.as_bytes()), "not the id of a door");
        Self(Cow::Borrowed(text))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DoorId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match is_door(text.as_bytes()) {
            true => Ok(Self(Cow::Owned(text.to_owned()))),
            false => Err(IdError::Door(text.to_owned())),
        }
    }
}

const fn is_door(mut text: &[u8]) -> bool {
    if text.len() > DOOR_BYTES_MAX || !matches!(text, [b'a'..=b'z', ..]) {
        return false;
    }
    while let [first, rest @ ..] = text {
        if !matches!(first, b'a'..=b'z' | b'0'..=b'9' | b'-') {
            return false;
        }
        text = rest;
    }
    true
}

impl fmt::Display for DoorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for DoorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The credential that admits a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Credential {
    /// The owner's socket, which needs no key.
    OwnerSocket,
    /// The key of the daemon's owner.
    OwnerKey,
    /// An API key.
    ApiKey {
        /// Its id.
        id: ApiKeyId,
        /// The name that it had then; may be empty.
        name: String,
    },
    /// The port token of the sandbox.
    PortToken,
    /// The cookie that a link to the port was exchanged for.
    PortLink,
}

impl Credential {
    /// Returns the word for it in answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::OwnerSocket => "owner_socket",
            Self::OwnerKey => "owner_key",
            Self::ApiKey { .. } => "api_key",
            Self::PortToken => "port_token",
            Self::PortLink => "port_link",
        }
    }
}

/// Who sent a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// The door through which it came.
    pub door: DoorId,
    /// The credential that admitted it.
    pub credential: Credential,
}

impl fmt::Display for Caller {
    /// Writes it as part of a sentence: `the API key 'ci' (ID)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.credential {
            Credential::OwnerSocket => f.write_str("the owner's socket"),
            Credential::OwnerKey => f.write_str("the owner's key"),
            Credential::ApiKey { id, name } if name.is_empty() => write!(f, "the API key {id}"),
            Credential::ApiKey { id, name } => write!(f, "the API key '{name}' ({id})"),
            Credential::PortToken => f.write_str("its port token"),
            Credential::PortLink => f.write_str("a link to its port"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_door_is_one_short_word() {
        for text in ["api", "e2b", "a", "modal-compat"] {
            assert_eq!(text.parse::<DoorId>().unwrap(), DoorId::known(text));
        }
        for text in ["", "API", "2b", "-a", "a b", "a_b", "abcdefghijklmnopq", "ä"] {
            assert_eq!(text.parse::<DoorId>(), Err(IdError::Door(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_caller_is_named_by_what_admitted_it() {
        let id = ApiKeyId::from_random([1; 20]);
        let caller = |credential| Caller { door: "api".parse().unwrap(), credential }.to_string();
        let named = Credential::ApiKey { id: id.clone(), name: "ci".to_owned() };
        assert_eq!(caller(named), format!("the API key 'ci' ({id})"));
        assert_eq!(caller(Credential::ApiKey { id: id.clone(), name: String::new() }), format!("the API key {id}"));
        assert_eq!(caller(Credential::OwnerSocket), "the owner's socket");
    }
}
