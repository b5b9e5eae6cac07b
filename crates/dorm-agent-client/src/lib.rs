//! The host's end of the connection to the agent inside a sandbox.
//!
//! [`Agent::connect`] takes any byte stream (two FIFOs under gVisor, a virtio-serial port in a microVM), says that a new
//! host is here, and waits for the agent's answer. From then on calls go in parallel; each is a channel of its own
//! (`dorm-agent-proto`). A reader that does not read stops its own channel and no other call.
//!
//! Whoever is root inside can be the agent. What does not keep to the protocol, or floods, ends the connection; numbers
//! and texts that come from here are possible ones and short.
//!
//! This crate does not know where the stream comes from, when a sandbox sleeps, or what a caller's timeout is: to give
//! up a call, drop its future. Guest paths are never used as paths of the host.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod agent;
mod channel;
mod connection;
mod credit;
mod dial;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inbox;
mod page;
mod processes;

pub use agent::Agent;
pub use dial::DialedStream;
pub use error::AgentError;
pub use files::{FileStream, WatchStream};
pub use page::{PAGE_MAX, Page};
pub use processes::{Output, OutputStream};

pub use dorm_agent_proto::{
    Account, Applied, Busy, Entry, ExitStatus, FileKind, FileStat, FirstReader, GuestError, GuestMount, GuestPath,
    GuestString, Hook, HookOutcome, Identity, Metrics, Offsets, OutputKind, Parents, ProcessSpec, ProcessStarted,
    ProcessStatus, RemoveScope, Resumed, Scope, Signal, Stdin, Target, TerminalSize, User, Variable, WatchEvent,
    WatchEventKind, WriteOptions, legible,
};
