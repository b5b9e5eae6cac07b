//! The engine on this host, for real: `runsc`, namespaces, control groups, disks.
//!
//! What the host cannot do is said loudly and not tested.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod begin;
mod conformance;
mod files;
mod host;
mod network;
mod restart;
mod sleep;
