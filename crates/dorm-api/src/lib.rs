#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]
// The example of a sandbox is one `json!` with many fields.
#![recursion_limit = "256"]

//! The native HTTP API: one door of a server. Listeners, credentials and the gateway to ports come
//! from `dorm-http`.
//!
//! Requests are parsed into types that cannot be invalid, the service is called, and its result is
//! converted to a response. There are no records, no timers, no decision about a sandbox's
//! lifecycle. The engine is shown to clients and never decides anything here.
//!
//! ```text
//! request ─► Gateway::route ─► key, or the owner's socket ─► routes ─► handlers ─► Service
//! ```

mod access;
mod collected;
mod conditions;
mod convert;
mod error;
mod extract;
mod handlers;
mod listen;
mod metrics;
mod page;
mod routes;
mod state;
mod tagged;
mod webhooks;

pub use error::error_reference;
pub use listen::open;
pub use webhooks::run as send_webhooks;
