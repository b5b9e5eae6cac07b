#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The HTTP base of every door: listeners and the life of connections, credentials, the gateway to
//! ports inside sandboxes, bodies that are collected, byte ranges and server-sent events.
//!
//! A door is an API for one family of clients. It brings routes and the form of its errors, and
//! everything here is the same behind each of them. The only state here is open connections and
//! the budgets of bodies: no records, no timers, no decision about a sandbox.
//!
//! ```text
//! listener ─► server::connection ─► Gateway::route ─┬─► a port inside, through Service::connect
//!                                                   └─► the routes of the door, with Access
//! ```

mod access;
pub mod bodies;
mod connections;
mod contents;
mod door;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod headers;
mod hosts;
mod keys;
mod life;
mod origin;
pub mod range;
mod request_body;
mod server;
pub mod sse;
mod tls;

pub use access::{Access, Credentials, Holder};
pub use connections::{ConnectionLimits, Connections, Standing};
pub use contents::contents;
pub use door::{Door, Peer, Scheme};
pub use gateway::{Gateway, OPEN_LINK, PortError, Routed, Target, WAKE};
pub use headers::{HeaderError, only};
pub use hosts::{Domains, host, split_port};
pub use keys::Keys;
pub use life::Life;
pub use origin::{NotAnOrigin, Origin};
pub use server::{NetworkDoor, Server};
pub use tls::{Given, Plain, Tls, TlsError};
