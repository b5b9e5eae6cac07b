//! The protocol between the host and the agent inside a sandbox.
//!
//! Both ends share one byte stream. It carries [`frame`]s: each belongs to a channel, and every
//! request of the host opens a new one. Requests, answers and events are JSON; file contents, input
//! and output are raw bytes. To send bytes or events on a channel, a side needs credit for them, so
//! a reader that is stuck stops only its own channel.
//!
//! The stream may be cut at any byte: the host dies, or the sandbox is saved and continues
//! elsewhere. A new host therefore begins with [`frame::resync`], which no incomplete frame before
//! it can hide, and trusts nothing until the agent has answered with the same [`Nonce`].
//!
//! ```text
//! host                                   agent
//!  │ padding, Resync{nonce} ───────────►  │  forgets every channel; processes live on
//!  │ ◄─────────── Hello{nonce, version}   │
//!  │ Request on channel 1 ─────────────►  │
//!  │ ◄──────────── Answer on channel 1    │  simple requests end here
//!  │ ◄── Data, Event ── Credit ──► Data   │  streams continue until End of both sides, or Cancel by the host
//! ```
//!
//! This crate does no input or output, and knows nothing of sandboxes, the meaning of generations,
//! or host paths.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod failure;
mod file;
mod guest;
mod identity;
mod message;
mod mount;
mod name;
mod process;
mod search;
mod service;

pub mod frame;

pub use failure::Failure;
pub use file::{
    ATTRIBUTES_BYTES_MAX, Attribute, DetailedEntry, Entry, FileKind, FileStat, LinkTarget, NumberedEvent, Parents,
    RemoveScope, Scope, WatchEvent, WatchEventKind, WatcherStatus, WriteAt, WriteOptions,
};
pub use guest::{GuestBytes, GuestError, GuestPath, GuestString, LEGIBLE_MAX, Variable, legible};
pub use identity::{Account, Applied, Hook, HookOutcome, Identity, Metrics, Resumed};
pub use message::{Added, Answer, End, Event, Hello, Nonce, OutputHeader, Request, Resync};
pub use mount::{Busy, GuestMount};
pub use name::{ServiceName, ServiceNameError};
pub use process::{
    ExitStatus, FirstReader, LABEL_MAX, Offsets, OutputEnd, OutputKind, ProcessKey, ProcessSpec, ProcessStarted,
    ProcessStatus, STATUS_BYTES, Signal, Stdin, Target, TerminalSize, User,
};
pub use search::{
    BinaryFiles, Case, LINE_SHOWN, LineMatch, LinePattern, Matcher, PATTERN_MAX, SearchLimit, SearchLimits, SearchSpec,
    SearchSummary, Syntax,
};
pub use service::{
    AfterEnd, Health, HealthCheck, Outcome, Probe, Restart, RestartRules, Restarts, ServiceChange, ServiceEvent,
    ServiceRecord, ServiceSpec, ServiceState, ServiceStatus,
};

/// The version of this protocol. Both ends must have the same; the agent's binary comes from the
/// host's own build.
pub const VERSION: u16 = 1;

/// The newest requests that this agent knows, counted within [`VERSION`]. A memory image keeps the
/// agent that ran in it, so a host also speaks with agents of earlier releases: it sends a request
/// only if the agent's revision is at least that of [`Request::added`].
pub const REVISION: u16 = 5;

/// The number of bytes that either side may send on a new channel before it gets more credit.
pub const WINDOW: u32 = 256 * 1024;

/// The largest request, in bytes, over all its frames.
pub const REQUEST_MAX: usize = 16 * 1024 * 1024;

/// The largest answer, in bytes, over all its frames. An agent with a longer one answers with a
/// failure instead.
pub const ANSWER_MAX: usize = 256 * 1024;

/// The largest event, in bytes, over all its frames.
pub const EVENT_MAX: usize = 1024 * 1024;

/// The number of bytes of each output stream of a process that are kept, unless the process asks
/// for another number.
pub const OUTPUT_KEPT: u32 = 1024 * 1024;
