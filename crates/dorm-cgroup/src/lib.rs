//! Control groups: the limits of a group of processes, and the means to freeze all of them at once.
//!
//! The API is the same for both cgroup versions, and for hosts that mount some controllers with
//! each. A group is identified by its name alone (`dormouse-ab12/ID-1`), so that a restarted daemon
//! finds it again. This crate does not know gVisor, runs or sandboxes. All calls block for at most
//! some milliseconds, except for those that wait, which say so.
//!
//! ```text
//! create ──► entry().enter() in the child ──► freeze / thaw ──► kill_all ──► remove
//!
//! own, speed, support, threshold ─► group ─► layout ─► v1, v2 ─► file, values
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod controller;
mod error;
mod file;
mod group;
mod layout;
mod own;
mod speed;
mod support;
mod threshold;
mod v1;
mod v2;
mod values;

#[cfg(test)]
mod tests;

pub use controller::{Controller, Version};
pub use error::CgroupError;
pub use group::{Cgroup, Entry};
pub use own::OwnGroup;
pub use speed::{Device, IoLimits, IoUsage, unlimit_device};
pub use support::Support;
pub use threshold::Threshold;
pub use values::{GroupUsage, Limits, Precedence};
