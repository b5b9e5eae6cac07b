//! The requests of the client, as a server on this host sees them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod errors;
mod operations;
mod retries;
mod server;
