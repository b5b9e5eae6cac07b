//! Times, secrets, and text from inside a sandbox.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

/// A time in UTC in RFC 3339 format, such as `2026-11-22T09:30:00.125Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Time(pub jiff::Timestamp);

impl Time {
    /// The moment `millis` milliseconds after 1970; the last representable one when it lies beyond.
    pub fn from_millis(millis: u64) -> Self {
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("'{text}' is not an RFC 3339 time: {error}")))
    }
}

/// Raw bytes: the body of requests and responses that are not JSON.
#[derive(Clone, PartialEq, Eq, Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct Binary(pub Vec<u8>);

/// Value of a secret. It is never returned.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A secret for a clone or child: null for the value of the source, or another value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Option<String>)]
pub struct NamedSecret(pub Option<Secret>);

/// Bytes from inside a sandbox: a string if they are valid UTF-8, otherwise `{"base64": "…"}`.
/// Requests can use either form.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Text {
    /// The text itself.
    Plain(String),
    /// Base64 with the standard alphabet and padding.
    Base64 {
        /// The bytes in base64.
        base64: String,
    },
}

impl Text {
    /// Chooses the plain form where it is possible.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        use base64::Engine as _;
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Base64 { base64: base64::engine::general_purpose::STANDARD.encode(bytes) },
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// When the base64 form is not base64.
    pub fn to_bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        use base64::Engine as _;
        match self {
            Self::Plain(text) => Ok(text.as_bytes().to_vec()),
            Self::Base64 { base64 } => base64::engine::general_purpose::STANDARD.decode(base64),
        }
    }
}

impl fmt::Display for Text {
    /// For people: bytes that are not UTF-8 are shown as `�`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_bytes() {
            Ok(bytes) => f.write_str(&String::from_utf8_lossy(&bytes)),
            Err(_) => f.write_str("�"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_text() {
        let time = Time::from_millis(1_795_339_800_125);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2026-11-22T09:30:00.125Z\"");
        assert_eq!(serde_json::from_str::<Time>(&json).unwrap(), time);
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }

    #[test]
    fn bytes_come_back_from_either_form() {
        for bytes in [&b"plain"[..], b"\xff\x00\xfe", b""] {
            let json = serde_json::to_string(&Text::from_bytes(bytes)).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap().to_bytes().unwrap(), bytes, "{json}");
        }
    }
}
