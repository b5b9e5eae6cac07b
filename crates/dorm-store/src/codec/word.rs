//! Single values as text: types that have a text form of their own, and enums that have a word for
//! each case.
//!
//! Reading a value parses it into the domain's type, so that no invalid value gets past the codec.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use dorm_lifecycle::environment::{OnBroken, OnDrift, OnLeave, SnapshotWhen, Way};
use dorm_lifecycle::{EventKind, Initiator, Timestamp, Wake};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::{Code, OperationKind};

/// A value that is written with `Display` and read with `FromStr`.
#[derive(Clone)]
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// An enum of the domain with one word for each case.
pub(super) trait Words: Copy + 'static {
    const WHAT: &'static str;
    const ALL: &'static [Self];
    fn word(self) -> &'static str;
}

impl Words for Initiator {
    const WHAT: &'static str = "an initiator";
    const ALL: &'static [Self] = &Initiator::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl Words for Wake {
    const WHAT: &'static str = "a wake policy";
    const ALL: &'static [Self] = &Wake::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl Words for EventKind {
    const WHAT: &'static str = "a kind of event";
    const ALL: &'static [Self] = EventKind::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl Words for OperationKind {
    const WHAT: &'static str = "a kind of operation";
    const ALL: &'static [Self] = &OperationKind::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl Words for Code {
    const WHAT: &'static str = "a kind of failure";
    const ALL: &'static [Self] = &Code::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
}

macro_rules! words {
    ($($name:ident $what:literal,)+) => {
        $(impl Words for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = $name::ALL;
            fn word(self) -> &'static str {
                self.as_str()
            }
        })+
    };
}

words! {
    Way "a way to a sandbox",
    SnapshotWhen "a time for snapshots",
    OnDrift "a policy for drift",
    OnBroken "a policy for what is broken",
    OnLeave "a policy for callers who leave",
}

/// A case of such an enum, as its word.
pub(super) struct Word<T>(pub(super) T);

impl<T: Words> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl<'de, T: Words> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let found = T::ALL.iter().copied().find(|word| word.word() == text);
        found.map(Self).ok_or_else(|| D::Error::custom(format_args!("'{text}' is not {}", T::WHAT)))
    }
}

/// A point in time in milliseconds.
pub(super) struct Millis(pub(super) Timestamp);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.as_millis())
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Timestamp::from_millis).map(Self)
    }
}

/// An exact duration: `[seconds, nanoseconds]`.
pub(super) struct Length(pub(super) Duration);

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.as_secs(), self.0.subsec_nanos()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, nanos) = <(u64, u32)>::deserialize(deserializer)?;
        if nanos >= 1_000_000_000 {
            return Err(D::Error::custom(format_args!("{nanos} nanoseconds are a second or more")));
        }
        Ok(Self(Duration::new(seconds, nanos)))
    }
}

/// Reads an optional field that must be present, if only as `null`: an image or a result that got
/// lost must not be read as one that never existed.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)
}
