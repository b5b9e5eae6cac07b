//! Conversions between wire types and the types of the service.

mod checkpoints;
mod daemon;
mod event;
mod file;
mod image;
mod key;
mod operation;
mod process;
mod sandbox;
mod snapshot;
mod tree;
mod volume;
mod why;

pub(crate) use checkpoints::checkpoints;
pub(crate) use daemon::webhook_secret;
pub(crate) use file::{entry, parse_mode, stat};
pub(crate) use image::transport;
pub(crate) use process::{Command, command, data, process_spec, shell};
pub(crate) use sandbox::{create, keeping, secrets, state_name, timeouts};
pub(crate) use volume::attach;
pub(crate) use why::why;

use dorm_lifecycle::Timestamp;

use crate::wire::Time;

pub(crate) fn time(at: Timestamp) -> Time {
    Time::from_millis(at.as_millis())
}
