//! The JSON form of Protocol Buffers, where it differs from that of `serde`: numbers may be texts,
//! bytes are in base64, and a name may have underscores.

use axum::http::header::HeaderValue;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as PADDED};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use super::super::fault::Fault;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Parses a message. An empty one has no fields.
pub(crate) fn parse<T: DeserializeOwned>(message: &[u8]) -> Result<T, Fault> {
    let message = if message.is_empty() { b"{}" } else { message };
    serde_json::from_slice(message).map_err(|error| Fault::invalid(format!("invalid message: {error}")))
}

/// A 32-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Number(pub(crate) u32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(u32),
            Float(f64),
            Text(String),
        }
        let is_whole = |number: f64| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        let number = match Given::deserialize(deserializer)? {
            Given::Number(number) => Some(number),
            // It was checked to be in range.
            Given::Float(number) => is_whole(number).then_some(number as u32),
            Given::Text(text) => text.parse().ok(),
        };
        number.map(Self).ok_or_else(|| D::Error::custom(format!("a number from 0 to {} is expected", u32::MAX)))
    }
}

/// Bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Base64(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let standard = match text.contains(['-', '_']) {
            true => text.replace('-', "+").replace('_', "/"),
            false => text,
        };
        LENIENT.decode(standard).map(Self).map_err(|error| D::Error::custom(format!("invalid base64: {error}")))
    }
}

/// Appends the base64 form of bytes.
pub(crate) fn append_base64(bytes: &[u8], to: &mut Vec<u8>) {
    let begin = to.len();
    to.resize(begin + bytes.len().div_ceil(3) * 4, 0);
    // It has exactly the room that was made for it.
    let _ = PADDED.encode_slice(bytes, &mut to[begin..]);
}

/// Decodes the user name of the header `Authorization: Basic`.
pub(crate) fn basic_user(value: &HeaderValue) -> Option<String> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| LENIENT.decode(encoded.trim()).ok())??;
    let (user, _) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_read_in_all_their_forms() {
        for text in ["42", "42.0", "4.2e1", "\"42\""] {
            assert_eq!(serde_json::from_str::<Number>(text).unwrap(), Number(42), "{text}");
        }
        for text in ["-1", "4294967296", "1.5", "\"x\"", "null", "[]"] {
            assert!(serde_json::from_str::<Number>(text).is_err(), "{text}");
        }
        for text in ["\"+/8=\"", "\"-_8\"", "\"+/8\""] {
            assert_eq!(serde_json::from_str::<Base64>(text).unwrap().0, [0xfb, 0xff], "{text}");
        }
        assert!(serde_json::from_str::<Base64>("\"a b\"").is_err());
        let mut text = b"x".to_vec();
        append_base64(&[0xfb, 0xff], &mut text);
        append_base64(b"", &mut text);
        assert_eq!(text, b"x+/8=");
    }

    #[test]
    fn the_user_is_the_part_before_the_colon() {
        let user = |text: &'static str| basic_user(&HeaderValue::from_static(text));
        assert_eq!(user("Basic cm9vdDo=").as_deref(), Some("root"));
        assert_eq!(user("basic cm9vdDp4").as_deref(), Some("root"));
        assert_eq!(user("Bearer cm9vdDo="), None);
        assert_eq!(user("Basic cm9vdA=="), None);
        assert_eq!(user("Basic"), None);
    }
}
