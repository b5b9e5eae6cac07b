//! The host's network for runs: one pair of network namespaces per run, and what may leave it.
//!
//! ```text
//!  sandbox namespace          gateway namespace                        the host
//!  eth0 10.0.0.2/30 ───────── inner 10.0.0.1/30
//!  (the engine takes it)      rules: what may leave, and names
//!                             uplink 10.200.x.y/30 ─────────────────── dormPPPP-N
//!                                                                      rules: out, but never to the host
//!                                                                      or to another sandbox
//! ```
//!
//! The inside is the same in every lease, so a fork or a restored sandbox needs no new address. The kernel holds the
//! state: rules live in the gateway namespace, so they go on while the daemon is down and die with the namespace.
//! Only the look-up of names passes through this process.
//!
//! It deliberately knows nothing of sandboxes, runs or engines: only leases, by number.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod command;
mod config;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod forwarding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod host;
mod host_network;
mod layout;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod lease;
mod link;
mod names;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod namespace;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see host_network")]
mod notes;
mod policy;
mod ruleset;
mod traffic;

pub use config::{Config, ConfigError, NameServers};
pub use host_network::HostNetwork;
pub use traffic::{TrafficLimits, probe_shaping};

use dorm_engine::NetworkError;

/// A failure of `operation` for the reason `source`.
fn failed(operation: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> NetworkError {
    NetworkError::Failed { operation: operation.into(), source: source.into() }
}
