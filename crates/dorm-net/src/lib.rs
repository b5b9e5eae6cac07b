//! The host's network for runs: one pair of network namespaces per run, and the rules for egress.
//!
//! ```text
//!  sandbox namespace          gateway namespace                        the host
//!  eth0 10.0.0.2/30 ───────── inner 10.0.0.1/30
//!  (the engine takes it)      rules: egress, and DNS
//!                             uplink 10.200.x.y/30 ─────────────────── dormPPPP-N
//!                                                                      rules: out, but never to the host
//!                                                                      or to another sandbox
//! ```
//!
//! The sandbox's side is the same in every lease, so a fork or a restored sandbox needs no new
//! address. The kernel holds the state: the rules are in the gateway namespace, so they stay in
//! effect while the daemon is down and disappear with the namespace. Only DNS queries pass through
//! this process.
//!
//! This crate does not know sandboxes, runs or engines; it only knows leases, by number.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod command;
mod config;
mod connectable;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod forwarding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generation;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod host;
mod host_network;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod interfaces;
mod layout;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod lease;
mod limits;
mod link;
mod links;
mod name_sockets;
mod names;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod namespace;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod notes;
mod policy;
mod proxy;
mod ruleset;
mod traffic;
mod way;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod wiring;

pub use config::{Config, ConfigError, NameServers, ProxyLimits};
pub use host_network::HostNetwork;
pub use limits::TrafficLimits;
pub use traffic::probe_shaping;

use dorm_engine::NetworkError;

/// Returns the error for a failure of `operation` with the cause `source`.
fn failed(operation: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> NetworkError {
    NetworkError::Failed { operation: operation.into(), source: source.into() }
}
