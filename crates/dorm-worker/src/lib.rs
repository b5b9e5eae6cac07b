//! Worker processes: they parse bytes that nobody vouches for, and hold nothing but their descriptors.
//!
//! ```text
//! caller ── bytes ──► stdin ┌──────────────────┐ stdout ── messages ──► caller, who checks them
//!                           │ dorm worker ROLE │
//!                           └──────────────────┘ stderr ── the first words of a crash
//! ```
//!
//! A worker is this very program, executed again with the name of a role. Before it reads its first byte it gives up
//! everything else ([`confine`]): it has no file system, no network, no user id that owns anything, no capability, and may
//! call the few system calls that reading, computing and writing take. A bug in a parser that is taken over gives its
//! finder the right to write other messages into the pipe, which the caller believes as little as the input itself.
//!
//! This crate does not know what is parsed. A reader defines its roles and messages where its format is known.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod child;
pub mod confine;
mod error;
mod message;
mod program;

pub use child::{NAME, Role, Work, run};
pub use error::WorkerError;
pub use message::{FRAME_MAX, Fields, Frames, Sender, legible};
pub use program::{Limits, Output, Program, Worker};
