//! The destinations that sandboxes reach and do not reach, with real namespaces. Each test has a
//! host of its own: a network and mount namespace that end with the test, however it ends. See
//! `support.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod connecting;
mod egress;
mod forwarding;
mod headers;
mod isolation;
mod life;
mod name_server;
mod names;
mod outside;
mod recovery;
mod support;
mod traffic;
