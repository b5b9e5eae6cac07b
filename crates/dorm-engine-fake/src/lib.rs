//! An engine in memory, for tests: it keeps every promise of the engine port without a process, a
//! mount or a clock of its own, and breaks them as planned.
//!
//! ```text
//! FakeHost ── open ──► FakeEngine (one daemon)      Faults: the nth call of an operation fails, hangs, …
//!    │ runs
//!    └──► machine ──► guest: processes (built-in programs), files, a clock that a pause stops
//!            └──► agent: speaks dorm-agent-proto over a stream in memory
//! ```
//!
//! Nothing is left to chance, and time is tokio's alone, so tests with paused time work. A memory
//! image is real files with sums, so tests can damage it. The guest's programs are listed in
//! `guest/program.rs`. Root filesystems and networks are not looked at; of the host a guest sees
//! what is mounted for it. A guest's disk and memory limits are kept by counting.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod agent;
mod engine;
mod error;
mod faults;
mod guest;
mod host;
mod image;
mod machine;
mod notices;
mod ports;
mod watch;

pub use engine::FakeEngine;
pub use error::FakeError;
pub use faults::{Fault, Faults, Moment, Operation};
pub use host::FakeHost;
pub use image::{ENGINE as IMAGE_ENGINE, FILES as IMAGE_FILES, MEMORY as IMAGE_MEMORY};
pub use ports::SERVED;
