//! Worker processes, which parse untrusted bytes and have no resources except their descriptors.
//!
//! ```text
//! caller ── bytes ──► stdin ┌──────────────────┐ stdout ── messages ──► caller, who checks them
//!                           │ dorm worker ROLE │
//!                           └──────────────────┘ stderr ── the first words of a crash
//! ```
//!
//! A worker is this same program, executed again with the name of a role. Before it reads its first
//! byte it gives up everything else ([`confine`]): it has no file system, no network, no user ID
//! that owns anything, no capability, and may only make the few system calls that reading,
//! computing and writing need. An attacker who exploits a parser can write other messages into the
//! pipe, which the caller trusts as little as the input itself.
//!
//! This crate does not know what is parsed. A reader defines its roles and messages where its
//! format is known.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod child;
pub mod confine;
mod error;
mod limits;
mod message;
mod program;

pub use child::{NAME, Role, Work, run};
pub use error::WorkerError;
pub use limits::Limits;
pub use message::{FRAME_MAX, Fields, Frames, Sender, legible};
pub use program::{Output, Program, Worker};
