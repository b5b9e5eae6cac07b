//! The host's end of the connection to the agent inside a sandbox.
//!
//! [`Agent::connect`] takes any byte stream (two FIFOs under gVisor, a virtio-serial port in a microVM), says that a new
//! host is here, and waits for the agent's answer. From then on calls go in parallel; each is a channel of its own
//! (`dorm-agent-proto`). A reader that does not read stops its own channel and no other call.
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
mod processes;

pub use agent::Agent;
pub use dial::DialedStream;
pub use error::AgentError;
pub use files::{FileStream, WatchStream};
pub use processes::{Output, OutputStream};

pub use dorm_agent_proto::{
    Account, Applied, Busy, Entry, ExitStatus, FileKind, FileStat, FirstReader, GuestError, GuestMount, GuestPath,
    GuestString, Hook, HookOutcome, Identity, Metrics, Offsets, OutputKind, Parents, ProcessSpec, ProcessStarted,
    ProcessStatus, RemoveScope, Resumed, Scope, Signal, Stdin, Target, TerminalSize, User, Variable, WatchEvent,
    WatchEventKind, WriteOptions,
};
