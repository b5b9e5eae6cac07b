#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The native HTTP API, and the gateway to ports inside sandboxes.

pub mod wire;
