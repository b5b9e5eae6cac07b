//! Text from inside a sandbox: paths, arguments and variables are bytes that need not be UTF-8.
//!
//! In JSON they are a plain string if they are UTF-8, and `{"base64": "…"}` otherwise, so nothing
//! is lost. A guest path has a meaning only inside the sandbox; nothing here lets the host use it
//! as one of its own.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Bytes that are no valid string, path or variable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GuestError {
    /// There is a zero byte, which no argument, variable or path may hold.
    #[error("'{0}' holds a zero byte: arguments, variables and paths inside a sandbox cannot")]
    Zero(String),
    /// The path is relative or empty.
    #[error("'{0}' is not an absolute path: paths inside a sandbox begin with /")]
    Relative(String),
    /// The name of a variable is empty or holds a `=`.
    #[error("'{0}' cannot be the name of a variable: it is empty or holds a =")]
    Variable(String),
}

/// Any bytes without a zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GuestString(Vec<u8>);

impl GuestString {
    /// Takes any bytes without a zero byte.
    ///
    /// # Errors
    /// [`GuestError::Zero`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, GuestError> {
        let bytes = bytes.into();
        if bytes.contains(&0) { Err(GuestError::Zero(legible(&lossy(&bytes)))) } else { Ok(Self(bytes)) }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes as a string of the operating system.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Its text; bytes that are not UTF-8 are shown as `�`.
    pub fn to_text(&self) -> String {
        lossy(&self.0)
    }
}

/// Any bytes from inside a sandbox.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GuestBytes(pub Vec<u8>);

impl fmt::Debug for GuestBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", lossy(&self.0))
    }
}

impl Serialize for GuestBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire::of(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GuestBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Wire::deserialize(deserializer)?.into_bytes().map(Self).map_err(serde::de::Error::custom)
    }
}

/// An absolute path inside a sandbox.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Takes an absolute path.
    ///
    /// # Errors
    /// [`GuestError::Relative`], [`GuestError::Zero`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, GuestError> {
        let bytes = GuestString::new(bytes)?.0;
        if bytes.first() == Some(&b'/') { Ok(Self(bytes)) } else { Err(GuestError::Relative(legible(&lossy(&bytes)))) }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as a path of the operating system. Only the agent may use it: on the host it names
    /// another file.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Its text; bytes that are not UTF-8 are shown as `�`.
    pub fn to_text(&self) -> String {
        lossy(&self.0)
    }

    /// This path with one more component.
    #[must_use]
    pub fn join(&self, name: &GuestString) -> Self {
        let mut bytes = self.0.clone();
        if bytes.last() != Some(&b'/') {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&name.0);
        Self(bytes)
    }
}

impl TryFrom<&Path> for GuestPath {
    type Error = GuestError;

    fn try_from(path: &Path) -> Result<Self, GuestError> {
        Self::new(path.as_os_str().as_bytes())
    }
}

/// The most bytes of a text that [`legible`] shows.
pub const LEGIBLE_MAX: usize = 512;

/// Makes a text from inside a sandbox safe to show, log and record: on one line, without characters
/// that control a terminal or change the direction of text, and cut to [`LEGIBLE_MAX`] bytes. A cut
/// text ends with `…`. A text that is safe already is returned unchanged.
pub fn legible(text: &str) -> String {
    const CUT: char = '…';
    let mut shown = String::new();
    // The length to cut to.
    let mut room = 0;
    for letter in text.chars() {
        let before = shown.len();
        match is_legible(letter) {
            true => shown.push(letter),
            false => shown.extend(letter.escape_default()),
        }
        if shown.len() > LEGIBLE_MAX {
            shown.truncate(room);
            shown.push(CUT);
            return shown;
        }
        if before + CUT.len_utf8() <= LEGIBLE_MAX {
            room = before;
        }
    }
    shown
}

/// Whether a character is shown as itself: it is neither a control character nor one that changes
/// the direction of text.
fn is_legible(letter: char) -> bool {
    let turns =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !letter.is_control() && !turns
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

macro_rules! text {
    ($name:ident) => {
        impl From<$name> for OsString {
            fn from(text: $name) -> Self {
                Self::from_vec(text.0)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = GuestError;

            fn try_from(text: &str) -> Result<Self, GuestError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = GuestError;

            fn try_from(text: String) -> Result<Self, GuestError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&legible(&lossy(&self.0)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", lossy(&self.0))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Wire::of(&self.0).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let bytes = Wire::deserialize(deserializer)?.into_bytes().map_err(serde::de::Error::custom)?;
                Self::new(bytes).map_err(serde::de::Error::custom)
            }
        }
    };
}

text!(GuestString);
text!(GuestPath);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Bytes { base64: String },
}

impl Wire {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes { base64: STANDARD.encode(bytes) },
        }
    }

    fn into_bytes(self) -> Result<Vec<u8>, base64::DecodeError> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Bytes { base64 } => STANDARD.decode(base64),
        }
    }
}

/// One environment variable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "(GuestString, GuestString)", into = "(GuestString, GuestString)")]
pub struct Variable {
    name: GuestString,
    value: GuestString,
}

impl Variable {
    /// Takes a name, which is not empty and holds no `=`, and any value.
    ///
    /// # Errors
    /// [`GuestError::Variable`], [`GuestError::Zero`].
    pub fn new(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<Self, GuestError> {
        Self::try_from((GuestString::new(name)?, GuestString::new(value)?))
    }

    /// Its name.
    pub fn name(&self) -> &GuestString {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &GuestString {
        &self.value
    }
}

impl TryFrom<(GuestString, GuestString)> for Variable {
    type Error = GuestError;

    fn try_from((name, value): (GuestString, GuestString)) -> Result<Self, GuestError> {
        if name.0.is_empty() || name.0.contains(&b'=') {
            return Err(GuestError::Variable(name.to_string()));
        }
        Ok(Self { name, value })
    }
}

impl From<Variable> for (GuestString, GuestString) {
    fn from(variable: Variable) -> Self {
        (variable.name, variable.value)
    }
}

/// Bytes as base64, for `#[serde(with)]`.
pub(crate) mod as_base64 {
    use base64::Engine as _;

    use super::{Deserialize, Deserializer, STANDARD, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: TryFrom<Vec<u8>>,
        D: Deserializer<'de>,
    {
        let bytes = STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)?;
        bytes.try_into().map_err(|_| serde::de::Error::custom("bytes of a wrong number"))
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestPath, GuestString, LEGIBLE_MAX, Variable, legible};

    #[test]
    fn a_text_is_shown_in_one_line_that_steers_nothing_and_has_an_end() {
        for plain in ["", "no such file", "köln/ファイル 🦀"] {
            assert_eq!(legible(plain), plain);
        }
        assert_eq!(legible("a\nb\x1b[31m\u{202e}c\u{85}"), r"a\nb\u{1b}[31m\u{202e}c\u{85}");
        assert_eq!(legible(&"x".repeat(LEGIBLE_MAX)), "x".repeat(LEGIBLE_MAX));
        for long in ["x".repeat(LEGIBLE_MAX + 1), "é".repeat(1 << 20), "\n".repeat(LEGIBLE_MAX)] {
            let shown = legible(&long);
            assert!(shown.len() <= LEGIBLE_MAX && shown.len() > LEGIBLE_MAX - 16 && shown.ends_with('…'), "{shown}");
        }
        assert_eq!(GuestPath::new("/a\tb").unwrap().to_string(), r"/a\tb");
    }

    #[test]
    fn bytes_that_are_not_utf8_come_back_from_json() {
        for bytes in [&b"/plain"[..], b"/\xff\xfe", "/köln".as_bytes()] {
            let path = GuestPath::new(bytes).unwrap();
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<GuestPath>(&json).unwrap(), path, "{json}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_also_from_json() {
        assert!(GuestPath::new("relative").is_err());
        assert!(GuestPath::new("").is_err());
        assert!(GuestString::new(b"a\0b".as_slice()).is_err());
        assert!(Variable::new("A=B", "c").is_err());
        assert!(Variable::new("", "c").is_err());
        assert!(serde_json::from_str::<GuestPath>("\"relative\"").is_err());
        assert!(serde_json::from_str::<Variable>("[\"A=B\",\"c\"]").is_err());
    }
}
