//! Processes inside a sandbox.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::snapshot::SnapshotKind;
use super::text::{Text, Time};

/// Runs a command to its end. Exactly one of `argv` and `shell` is given.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecRequest {
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Text>>,
    /// A line for `/bin/sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Variables on top of the sandbox's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it starts. Default: the user's home, or `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// As whom: a name, a number, or `UID:GID`. Default: root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its standard input, whole. Default: empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Text>,
    /// Seconds after which it and its process group are killed. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Takes a snapshot first. When that fails, the command is not run. Default: none is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<SnapshotKind>,
}

/// How a command went. Exactly one of `exit_code` and `signal` is there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    /// Its handle.
    pub process: u64,
    /// Its process id inside.
    pub pid: u32,
    /// Its exit code, from 0 to 255.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// Whether its time was up, so that it was killed.
    pub timed_out: bool,
    /// Its standard output from the beginning, 4 MiB at most.
    pub stdout: String,
    /// How `stdout` is written.
    pub stdout_encoding: Encoding,
    /// How many bytes of standard output are not in `stdout`.
    pub stdout_truncated_bytes: u64,
    /// Its standard error from the beginning, 4 MiB at most.
    pub stderr: String,
    /// How `stderr` is written.
    pub stderr_encoding: Encoding,
    /// How many bytes of standard error are not in `stderr`.
    pub stderr_truncated_bytes: u64,
    /// The snapshot that was taken before, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// How bytes are written in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As they are: they are UTF-8.
    Utf8,
    /// As base64 (standard alphabet, padded).
    Base64,
}

/// Starts a process that goes on by itself. Exactly one of `argv` and `shell` is given.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartProcess {
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Text>>,
    /// A line for `/bin/sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Variables on top of the sandbox's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it starts. Default: the user's home, or `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// As whom: a name, a number, or `UID:GID`. Default: root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its standard input. Default `empty`.
    pub stdin: Stdin,
    /// Gives it a terminal of that size, which is then its input and its only output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// A word to find it by in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How many bytes of each output are kept for readers. Default 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_kept_bytes: Option<u32>,
}

/// A process's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Ends at once.
    #[default]
    Empty,
    /// What is written to it, until it is closed.
    Pipe,
}

/// The size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// A started process; also data of the server-sent event `started`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessStarted {
    /// Its handle; never used again in this sandbox.
    pub process: u64,
    /// Its process id inside.
    pub pid: u32,
}

/// What is known of a process. Ended ones are kept for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Process {
    /// Its handle.
    pub process: u64,
    /// Its process id inside; may belong to another one when it has ended.
    pub pid: u32,
    /// What it was started with.
    pub argv: Vec<Text>,
    /// Where it started.
    pub cwd: Text,
    /// The names of the variables it was given on top of the sandbox's.
    pub env: Vec<Text>,
    /// As whom, if it was said.
    pub user: Option<String>,
    /// The caller's word for it.
    pub label: Option<String>,
    /// Its terminal, if it has one.
    pub terminal: Option<TerminalSize>,
    /// When it started, by the sandbox's clock.
    pub started_at: Time,
    /// How much standard output it has written.
    pub stdout_bytes: u64,
    /// How much standard error it has written.
    pub stderr_bytes: u64,
    /// How it ended; none while it lives.
    pub exit: Option<ExitStatus>,
}

/// The processes of a sandbox that were started by this API, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// The processes.
    pub processes: Vec<Process>,
    /// `after` for the next page; none on the last one.
    pub next: Option<u64>,
}

/// How a process ended; also data of the server-sent event `exit`. Exactly one of `exit_code` and `signal` is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExitStatus {
    /// Its exit code, from 0 to 255.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// Whether the time limit of an `exec` was up, so that it was killed.
    #[serde(default)]
    pub timed_out: bool,
}

/// A piece of output: data of the server-sent events `stdout` and `stderr`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    /// Where its first byte stands in that output, counted from the process's start.
    pub offset: u64,
    /// The bytes.
    pub data: String,
    /// How they are written.
    pub encoding: Encoding,
}

/// A gap in the output: bytes that are no longer kept. Data of the server-sent event `lost`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostOutput {
    /// In which output.
    pub stream: OutputStream,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// One of a process's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, or all that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How much was written to a process's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StdinWritten {
    /// The bytes of this request, all of which the sandbox's kernel has taken.
    pub bytes: u64,
}

/// Sends a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Its Linux number, from 1 to 31.
    pub signal: i32,
    /// Whom it goes to. Default `process`.
    #[serde(default)]
    pub target: SignalTarget,
}

/// Whom a signal goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The process alone.
    #[default]
    Process,
    /// The process and what it started, unless that left its group.
    Group,
}

/// Changes the size of a process's terminal.
pub type Resize = TerminalSize;

/// A text frame of the terminal's WebSocket. Terminal bytes are binary frames.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TerminalMessage {
    /// From the daemon, first: the process, by which the terminal can be attached again.
    Started {
        /// Its handle.
        process: u64,
        /// Its process id inside.
        pid: u32,
    },
    /// From the caller: the terminal has another size.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        cols: u16,
    },
    /// From the caller: end of its input.
    Eof,
    /// From the daemon: output that is no longer kept was skipped.
    Lost {
        /// Where the gap begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// From the daemon, last: the process has ended.
    Exit {
        /// Its exit code.
        exit_code: Option<i32>,
        /// The number of the signal that ended it.
        signal: Option<i32>,
    },
    /// From the daemon, last: it does not go on.
    Error {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// What the caller can do next.
        next_step: String,
    },
}
