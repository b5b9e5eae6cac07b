#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The door for clients of E2B: its control API, the daemon `envd` that its clients expect in every
//! sandbox, and the routes to ports inside. Its wire format is described in `docs/e2b.md`.
//!
//! Requests are parsed, converted and passed to the service, and the result is converted back.
//! There are no records, no timers and no tables here: what the clients expect to be remembered is
//! part of a sandbox, a snapshot or a build, and every token is derived from a secret of the
//! daemon.
//!
//! ```text
//! request ─► dispatch ─┬─► a port inside, through the gateway of dorm-http
//!                      ├─► envd, when the port is 49983 ─► the agent of the sandbox
//!                      └─► control, with an API key ─► Service
//! ```

mod control;
mod dispatch;
mod door;
mod envd;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod listen;
mod ports;
mod text;
mod tokens;

pub use door::DOOR;
pub use listen::open;
