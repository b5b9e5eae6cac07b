//! The real agent, as an ordinary child process of the test, driven by the real client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod connection;
mod files;
mod identity;
mod in_place;
mod many;
mod output;
mod processes;
mod search;
mod services;
mod support;
mod tree;
mod watch;
mod watchers;
