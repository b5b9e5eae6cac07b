//! Processes inside a sandbox.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::snapshot::SnapshotKind;
use crate::text::{Text, Time};

/// Runs a command and waits for it to end. Exactly one of `argv` and `shell` is required.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecRequest {
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Text>>,
    /// Command line for `/bin/sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory. Default: that of the image if the user is the image's, otherwise the home
    /// directory of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The whole standard input. Default: empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Text>,
    /// Keep the standard input open: write to it with `/processes/{process}/stdin`, and close it
    /// with `/processes/{process}/stdin/close`. The event `started` has the handle. Not together
    /// with `stdin`. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin_open: bool,
    /// Seconds after which the command and its process group are killed. Time during which the
    /// sandbox is suspended does not count. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Take a snapshot of this kind first. If that fails, the command does not run. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<SnapshotKind>,
}

/// The result of a command. Exactly one of `exit_code` and `signal` is set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    /// Handle of the process.
    pub process: u64,
    /// Process ID inside the sandbox.
    pub pid: u32,
    /// Exit code, 0 to 255.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the process.
    pub signal: Option<i32>,
    /// Whether the command was killed because its time limit passed.
    pub timed_out: bool,
    /// Standard output from its start, at most 4 MiB.
    pub stdout: String,
    /// Encoding of `stdout`.
    pub stdout_encoding: Encoding,
    /// Number of bytes of standard output that are not in `stdout`.
    pub stdout_truncated_bytes: u64,
    /// Standard error from its start, at most 4 MiB.
    pub stderr: String,
    /// Encoding of `stderr`.
    pub stderr_encoding: Encoding,
    /// Number of bytes of standard error that are not in `stderr`.
    pub stderr_truncated_bytes: u64,
    /// ID of the snapshot that was taken before the command, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// How bytes are encoded in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Plain text, because the bytes are valid UTF-8.
    Utf8,
    /// Base64 with the standard alphabet and padding.
    Base64,
}

/// Starts a background process. Exactly one of `argv` and `shell` is required.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartProcess {
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Text>>,
    /// Command line for `/bin/sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory. Default: that of the image if the user is the image's, otherwise the home
    /// directory of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Standard input. Default `empty`.
    pub stdin: Stdin,
    /// Run the process in a terminal of this size. The terminal is its input and its only output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Label to find the process by in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Seconds after which the process and its process group are killed, also if its standard input
    /// is open. Time during which the sandbox is suspended does not count. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// How many bytes of each output stream are kept for readers. Default 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_kept_bytes: Option<u32>,
}

/// Standard input of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Empty: reading it returns end of file at once.
    #[default]
    Empty,
    /// A pipe that requests write to until it is closed.
    Pipe,
}

/// Size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub cols: u16,
}

/// A started process. Also the data of the server-sent event `started`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessStarted {
    /// Handle of the process. Handles are never reused in a sandbox.
    pub process: u64,
    /// Process ID inside the sandbox.
    pub pid: u32,
}

/// A process. Ended processes are remembered for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Process {
    /// Handle of the process.
    pub process: u64,
    /// Process ID inside the sandbox. After the process has ended, another one may use it.
    pub pid: u32,
    /// The command and its arguments.
    pub argv: Vec<Text>,
    /// Working directory at the start.
    pub cwd: Text,
    /// Names of the environment variables that the process got in addition to those of the sandbox.
    pub env: Vec<Text>,
    /// User that was requested, if any.
    pub user: Option<String>,
    /// Label that was requested, if any.
    pub label: Option<String>,
    /// Size of its terminal, if it has one.
    pub terminal: Option<TerminalSize>,
    /// When the process started, by the clock of the sandbox.
    pub started_at: Time,
    /// Number of bytes written to standard output.
    pub stdout_bytes: u64,
    /// Number of bytes written to standard error.
    pub stderr_bytes: u64,
    /// How the process ended. Null while it runs.
    pub exit: Option<ExitStatus>,
}

/// A page of processes that were started through this API, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// The processes.
    pub processes: Vec<Process>,
    /// Cursor: `after` of the next page. Null on the last page.
    pub next: Option<String>,
}

/// The result of killing a process with all that descend from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Killed {
    /// Number of processes that were killed.
    pub killed: u32,
}

/// How a process ended. Exactly one of `exit_code` and `signal` is set. Also the data of the
/// server-sent event `exit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExitStatus {
    /// Exit code, 0 to 255.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the process.
    pub signal: Option<i32>,
    /// Whether the process was killed because its time limit passed.
    #[serde(default)]
    #[schema(required)]
    pub timed_out: bool,
}

/// A chunk of output. Data of the server-sent events `stdout` and `stderr`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    /// Position of the first byte in this output stream, counted from the start of the process.
    pub offset: u64,
    /// When the bytes were read from the process, by the clock of the sandbox. Null in a sandbox
    /// that was suspended under an earlier release.
    #[serde(default)]
    #[schema(required)]
    pub read_at: Option<Time>,
    /// The bytes.
    pub data: String,
    /// Encoding of `data`.
    pub encoding: Encoding,
}

/// A gap in the output: bytes that are no longer kept. Data of the server-sent event `lost`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostOutput {
    /// The output stream with the gap.
    pub stream: OutputStream,
    /// Position where the gap starts.
    pub offset: u64,
    /// Length of the gap in bytes.
    pub bytes: u64,
}

/// An output stream of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, or everything that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Result of writing to the standard input of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StdinWritten {
    /// Number of bytes in this request. The kernel of the sandbox has accepted all of them.
    pub bytes: u64,
}

/// Sends a signal to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Linux signal number, 1 to 31.
    pub signal: i32,
    /// Receiver of the signal. Default `process`.
    #[serde(default)]
    pub target: SignalTarget,
}

/// Receiver of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// Only the process.
    #[default]
    Process,
    /// The process group: the process and its descendants that did not leave the group.
    Group,
}

/// Changes the size of the terminal of a process.
pub type Resize = TerminalSize;

/// A text frame of the terminal WebSocket. Binary frames carry the bytes of the terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TerminalMessage {
    /// First message of the server. The handle can be used to attach to the terminal again.
    Started {
        /// Handle of the process.
        process: u64,
        /// Process ID inside the sandbox.
        pid: u32,
    },
    /// From the client: the terminal has a new size.
    Resize {
        /// Number of rows.
        rows: u16,
        /// Number of columns.
        cols: u16,
    },
    /// From the client: end of input.
    Eof,
    /// From the server: output that is no longer kept was skipped.
    Lost {
        /// Position where the gap starts.
        offset: u64,
        /// Length of the gap in bytes.
        bytes: u64,
    },
    /// Last message of the server: the process has ended.
    Exit {
        /// Exit code, 0 to 255.
        exit_code: Option<i32>,
        /// Number of the signal that ended the process.
        signal: Option<i32>,
    },
    /// Last message of the server: the terminal failed.
    Error {
        /// HTTP status that the error has in a response.
        status: u16,
        /// Error code.
        code: String,
        /// The failure and its reason.
        detail: String,
        /// The next step for the caller.
        next_step: String,
    },
}
