//! The engine on this real host: `runsc`, namespaces, control groups, disks.
//!
//! Tests that the host cannot run are skipped loudly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod agents;
mod base;
mod begin;
mod conformance;
mod files;
mod host;
mod network;
mod parked;
mod programs;
mod restart;
mod shared_memory;
mod sleep;
mod trial;
