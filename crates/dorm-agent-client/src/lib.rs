//! The host's end of the connection to the agent in a sandbox.
//!
//! [`Agent::connect`] takes any byte stream (two FIFOs under gVisor, a virtio-serial port in a
//! microVM), announces a new host, and waits for the agent's answer. From then on calls run in
//! parallel; each has a channel of its own (`dorm-agent-proto`). A caller that does not read blocks
//! its own channel and no other call.
//!
//! Root in the sandbox can replace the agent. A protocol violation or a flood ends the connection;
//! numbers and texts returned by this crate are plausible and short.
//!
//! This crate does not know where the stream comes from, when a sandbox is suspended, or the
//! timeouts of callers: to cancel a call, drop its future. Guest paths are never used as paths of
//! the host.
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
mod output;
mod page;
mod processes;
mod search;
mod services;
mod watchers;

pub use agent::Agent;
pub use dial::DialedStream;
pub use error::AgentError;
pub use files::{FileStream, WatchStream};
pub use output::{Output, OutputStream};
pub use page::{PAGE_MAX, Page};
pub use search::{FoundFiles, FoundLines};

pub use dorm_agent_proto::{
    ATTRIBUTES_BYTES_MAX, Account, Applied, Attribute, BinaryFiles, Busy, Case, DetailedEntry, Entry, ExitStatus,
    FileKind, FileStat, FirstReader, GuestBytes, GuestError, GuestMount, GuestPath, GuestString, Health, HealthCheck,
    Hook, HookOutcome, Identity, LineMatch, LinePattern, LinkTarget, Metrics, NumberedEvent, Offsets, OutputEnd,
    OutputKind, Parents, Probe, ProcessKey, ProcessSpec, ProcessStarted, ProcessStatus, RemoveScope, Restart,
    RestartRules, Resumed, Scope, SearchLimit, SearchLimits, SearchSpec, SearchSummary, ServiceChange, ServiceEvent,
    ServiceName, ServiceSpec, ServiceState, ServiceStatus, Signal, Stdin, Syntax, Target, TerminalSize, User, Variable,
    WatchEvent, WatchEventKind, WatcherStatus, WriteAt, WriteOptions, legible,
};
