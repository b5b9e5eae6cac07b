//! Conversions between wire types and the types of the service.
//!
//! Both are defined in other crates, so that [`From`] cannot be implemented for them here. [`Of`]
//! and [`Convert`] take its place.

mod build;
mod caller;
mod checkpoints;
mod daemon;
mod egress;
mod environment;
mod event;
mod file;
mod image;
mod key;
mod operation;
mod pool;
mod process;
mod project;
mod sandbox;
mod search;
mod service;
mod snapshot;
mod tree;
mod usage;
mod volume;
mod why;

pub(crate) use build::{digest, plan, tags_or_default, template_name};
pub(crate) use checkpoints::checkpoints;
pub(crate) use daemon::webhook_secret;
pub(crate) use environment::ensure;
pub(crate) use file::{attribute, attributes, entry, parse_mode, stat};
pub(crate) use image::transport;
pub(crate) use key::{port_host_or_none, port_rule, port_rules};
pub(crate) use process::{Command, command, data, escaped_bytes, json_bytes_most, process_spec, shell};
pub(crate) use sandbox::{
    after_wake, create, keep, manner, resize, resources, retention, secrets, state_name, timeouts, update, wait,
};
pub(crate) use service::service_spec;
pub(crate) use volume::attach;
pub(crate) use why::why;

use dorm_api_types::Time;
use dorm_lifecycle::Timestamp;

/// [`From`] for two types of other crates.
pub(crate) trait Of<T> {
    /// The value that stands for `value`.
    fn of(value: T) -> Self;
}

/// [`Into`] for two types of other crates.
pub(crate) trait Convert<T> {
    /// The value that stands for `self`.
    fn convert(self) -> T;
}

impl<T, U: Of<T>> Convert<U> for T {
    fn convert(self) -> U {
        U::of(self)
    }
}

/// A time on the wire.
pub(crate) fn time(at: Timestamp) -> Time {
    Time::from_millis(at.as_millis())
}
