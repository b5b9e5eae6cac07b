#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The host's user and group ids for guests: one range of 65,536, which no other user may have.
//!
//! ```text
//! id in a sandbox    0 … 65,535
//! id on the host     base … base + 65,535        the base is chosen once for each data directory (decision 0029)
//! ```
//!
//! Files of images, saved states and volumes have ids of the host as owners. Beside each is a
//! [`RECORD`] of the range; without one, they were created before the range could be chosen, with
//! [`GuestIds::LEGACY`]. File capabilities are only kept in the form that the kernel honours inside
//! that range ([`capability`]). The crate is pure: it reads and writes no files.

pub mod capability;
mod claims;

use std::fmt;

pub use claims::{Claim, Databases, claims, free};
use thiserror::Error;

/// The name of the file that records the range with which files were created: the base in decimal
/// digits and a line feed.
pub const RECORD: &str = "guest-ids";

/// The host ids of guests: [`GuestIds::COUNT`] ids from a base.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GuestIds {
    base: u32,
}

/// The number cannot be a base.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "guest ids cannot begin at {base}: the base is between {} and {}, since lower ids belong to the host's users and \
     programs read higher ones as negative",
    GuestIds::BASE_LEAST,
    GuestIds::BASE_MOST
)]
pub struct BadBase {
    /// The number.
    pub base: u32,
}

impl GuestIds {
    /// The number of ids in a sandbox.
    pub const COUNT: u32 = 65_536;
    /// The lowest base: the host gives lower ids to its own users.
    pub const BASE_LEAST: u32 = 65_536;
    /// The highest base: programs and protocols with signed ids support none above 2,147,483,647.
    pub const BASE_MOST: u32 = 0x7fff_0000;
    /// The default range. systemd documents it as unused, and it is above all subordinate ids that
    /// `useradd` assigns to users.
    pub const DEFAULT: Self = Self { base: 0x7000_0000 };
    /// The range of all versions before this type existed. It is the first subordinate range that
    /// `useradd` assigns.
    pub const LEGACY: Self = Self { base: 100_000 };

    /// The range that begins at `base`.
    ///
    /// # Errors
    /// [`BadBase`] if it would contain ids of the host, or ids above the limit of some programs.
    pub const fn new(base: u32) -> Result<Self, BadBase> {
        match base >= Self::BASE_LEAST && base <= Self::BASE_MOST {
            true => Ok(Self { base }),
            false => Err(BadBase { base }),
        }
    }

    /// The first host id, which is that of guests' root.
    pub const fn base(self) -> u32 {
        self.base
    }

    /// The host id of the guest's `id`; `None` if no guest has it.
    pub fn host(self, id: u32) -> Option<u32> {
        (id < Self::COUNT).then(|| self.base + id)
    }

    /// The guest id of the host's `id`; `None` outside of the range.
    pub fn guest(self, id: u32) -> Option<u32> {
        id.checked_sub(self.base).filter(|id| *id < Self::COUNT)
    }

    /// Whether the ranges have an id in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.base.abs_diff(other.base) < Self::COUNT
    }

    /// The content of a [`RECORD`].
    pub fn to_record(self) -> String {
        format!("{}\n", self.base)
    }

    /// Parses a [`RECORD`]; `None` if it is invalid.
    pub fn from_record(text: &str) -> Option<Self> {
        Self::new(text.strip_suffix('\n')?.parse().ok()?).ok()
    }
}

impl Default for GuestIds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for GuestIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.base, self.base + (Self::COUNT - 1))
    }
}

impl std::str::FromStr for GuestIds {
    type Err = String;

    /// Parses a base in decimal digits.
    fn from_str(text: &str) -> Result<Self, String> {
        let base: u32 = text.parse().map_err(|_| format!("'{text}' is no user id: give the first id of the range"))?;
        Self::new(base).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shifted_within_the_range_and_nowhere_else() {
        let ids = GuestIds::new(200_000).unwrap();
        assert_eq!((ids.host(0), ids.host(65_535), ids.host(65_536)), (Some(200_000), Some(265_535), None));
        assert_eq!((ids.guest(200_000), ids.guest(265_535)), (Some(0), Some(65_535)));
        assert_eq!((ids.guest(199_999), ids.guest(265_536), ids.guest(0)), (None, None, None));
        assert_eq!(ids.to_string(), "200000-265535");
    }

    #[test]
    fn a_range_that_reaches_into_ids_of_the_host_is_refused() {
        for base in [0, 1000, 65_535, 0x7fff_0001, u32::MAX] {
            let error = GuestIds::new(base).unwrap_err();
            assert!(error.to_string().contains(&base.to_string()), "{error}");
        }
        assert!("-1".parse::<GuestIds>().is_err() && "0x70000000".parse::<GuestIds>().is_err());
        assert_eq!("1879048192".parse(), Ok(GuestIds::DEFAULT));
    }

    #[test]
    fn a_record_is_read_back_and_rubbish_is_none() {
        assert_eq!(GuestIds::from_record(&GuestIds::DEFAULT.to_record()), Some(GuestIds::DEFAULT));
        for text in ["", "100000", "0\n", "x\n", "100000\n\n", "4294967295\n"] {
            assert_eq!(GuestIds::from_record(text), None, "{text:?}");
        }
    }

    #[test]
    fn ranges_that_share_an_id_overlap() {
        let at = |base| GuestIds::new(base).unwrap();
        assert!(at(100_000).overlaps(at(165_535)) && at(165_535).overlaps(at(100_000)));
        assert!(!at(100_000).overlaps(at(165_536)) && !GuestIds::DEFAULT.overlaps(GuestIds::LEGACY));
    }
}
