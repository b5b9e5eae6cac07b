//! One handler for each route: parse, call the service, convert back.

pub(crate) mod checkpoints;
pub(crate) mod daemon;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod forks;
pub(crate) mod images;
pub(crate) mod keys;
pub(crate) mod operations;
pub(crate) mod output;
pub(crate) mod ports;
pub(crate) mod processes;
mod progress;
pub(crate) mod pty;
mod range;
pub(crate) mod remote;
pub(crate) mod retention;
pub(crate) mod rewinds;
pub(crate) mod sandboxes;
pub(crate) mod snapshots;
pub(crate) mod transfer;
pub(crate) mod tree;
pub(crate) mod volumes;
pub(crate) mod webhooks;
