#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]
// The example of a sandbox is one `json!` with many fields.
#![recursion_limit = "256"]

//! The native HTTP API, and the gateway to ports inside sandboxes.
//!
//! Requests are parsed into types that cannot be invalid, the service is called, and its result is
//! converted to a response. The only state here is open connections: no records, no timers, no
//! decision about a sandbox's lifecycle. The engine is shown to clients and never decides anything
//! here.
//!
//! ```text
//! connection ─► gateway::pass_on ─┬─► a port inside, through Service::connect
//!                                 └─► key, or the owner's door ─► routes ─► handlers ─► Service
//! ```

mod access;
mod conditions;
mod connections;
mod convert;
mod door;
mod error;
mod extract;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod handlers;
mod hosts;
mod keys;
mod metrics;
mod page;
mod routes;
mod serve;
mod sse;
mod state;
mod tagged;
mod webhooks;

pub use connections::ConnectionLimits;
pub use error::error_reference;
pub use hosts::{Access, Domains};
pub use keys::Keys;
pub use serve::{Doors, serve, serve_with_grace};
