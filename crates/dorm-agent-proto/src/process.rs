//! Types for processes inside a sandbox.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::guest::{GuestPath, GuestString, Variable};
use crate::{Failure, OUTPUT_KEPT};

/// A process to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The command and its arguments. A command without `/` is looked for in the process's own
    /// `PATH`.
    pub arguments: Vec<GuestString>,
    /// Variables in addition to the sandbox's own; of several with one name, the last counts.
    pub variables: Vec<Variable>,
    /// Working directory; by default the user's home, or `/` if that is missing.
    pub directory: Option<GuestPath>,
    /// User; by default root.
    pub user: Option<User>,
    /// Size of its terminal, if it gets one. Its output is then all [`OutputKind::Stdout`].
    pub terminal: Option<TerminalSize>,
    /// Its standard input. A process with a terminal reads that instead.
    pub stdin: Stdin,
    /// Number of bytes of each output stream that are kept for readers.
    pub output_kept: u32,
    /// Whether a reader attaches at once.
    pub first_reader: FirstReader,
    /// When its output ends for readers. Agents before revision 4 know only
    /// [`OutputEnd::WithProcess`].
    #[serde(default)]
    pub output_end: OutputEnd,
    /// A label by which the caller finds it in the list of processes, of at most [`LABEL_MAX`]
    /// bytes.
    pub label: Option<String>,
}

impl ProcessSpec {
    /// A process with defaults: no terminal, no input, 1 MiB kept of each output stream.
    pub fn new(arguments: Vec<GuestString>) -> Self {
        Self {
            arguments,
            variables: Vec::new(),
            directory: None,
            user: None,
            terminal: None,
            stdin: Stdin::Empty,
            output_kept: OUTPUT_KEPT,
            first_reader: FirstReader::NotExpected,
            output_end: OutputEnd::WithProcess,
            label: None,
        }
    }
}

/// A process's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Ends at once.
    #[default]
    Empty,
    /// Delivers the bytes that the host writes, until it is closed.
    Pipe,
}

/// Whether output may be dropped before the first reader attaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstReader {
    /// It may: when more is written than is kept, the oldest bytes are dropped, and the process
    /// never waits.
    #[default]
    NotExpected,
    /// A reader attaches at once; the process waits for it, for a few seconds at most.
    Expected,
}

/// When the output of a process ends for its readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputEnd {
    /// When the process has ended, whatever its children still write.
    #[default]
    WithProcess,
    /// When the process has ended and no other process has its output open; but at once if it is
    /// sent SIGTERM or SIGKILL, or at its time limit. The output of a terminal ends with its
    /// process.
    WithPipes,
}

/// Names a process by what its caller knows of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKey {
    /// By its process id inside the sandbox.
    Pid(u32),
    /// By its label.
    Label(String),
}

/// A user of the sandbox, as listed in its own `/etc/passwd`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum User {
    /// A user by name.
    Name(String),
    /// A user by number. Without a group: the primary group in the user list, or else the same
    /// number.
    Id {
        /// The user's number.
        uid: u32,
        /// The group's number.
        gid: Option<u32>,
    },
}

impl FromStr for User {
    type Err = Failure;

    /// Parses `name`, `uid` or `uid:gid`.
    fn from_str(text: &str) -> Result<Self, Failure> {
        let bad = || Failure::NoUser { user: text.to_owned() };
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let (uid, gid) = match text.split_once(':') {
                Some((uid, gid)) => (uid, Some(gid.parse().map_err(|_| bad())?)),
                None => (text, None),
            };
            return Ok(Self::Id { uid: uid.parse().map_err(|_| bad())?, gid });
        }
        if text.is_empty() || text.contains([':', '\n', '\0']) { Err(bad()) } else { Ok(Self::Name(text.to_owned())) }
    }
}

impl TryFrom<String> for User {
    type Error = Failure;

    fn try_from(text: String) -> Result<Self, Failure> {
        text.parse()
    }
}

impl From<User> for String {
    fn from(user: User) -> Self {
        user.to_string()
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id { uid, gid: None } => write!(f, "{uid}"),
            Self::Id { uid, gid: Some(gid) } => write!(f, "{uid}:{gid}"),
        }
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters in a line.
    pub columns: u16,
}

/// A started process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessStarted {
    /// Its handle, for later calls. It is never reused in this sandbox or in a descendant.
    pub process: u64,
    /// Its process id inside the sandbox.
    pub pid: u32,
}

/// The longest label of a process, in bytes.
pub const LABEL_MAX: usize = 1024;

/// The most bytes of arguments, and likewise of variables, in a [`ProcessStatus`]. In JSON they
/// take at most six times as much, which fits an event.
pub const STATUS_BYTES: usize = 64 * 1024;

/// The status of a process. About 4,000 ended processes are kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its handle.
    pub process: u64,
    /// Its process id inside the sandbox. After it has ended, another process may have the same id.
    pub pid: u32,
    /// Its command and arguments: as many as fit into [`STATUS_BYTES`], each counted with one byte
    /// more.
    pub arguments: Vec<GuestString>,
    /// Its working directory at the start.
    pub directory: GuestPath,
    /// Its variables in addition to the sandbox's own, without their values: as many as fit into
    /// [`STATUS_BYTES`].
    pub variables: Vec<Variable>,
    /// Its user, if one was given.
    pub user: Option<User>,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Its terminal's size, if it has one.
    pub terminal: Option<TerminalSize>,
    /// When it started, in milliseconds since 1970, by the sandbox's clock.
    pub started_unix_ms: u64,
    /// The number of bytes written so far to each output stream.
    pub written: Offsets,
    /// Its exit status, if it has ended.
    pub exit: Option<ExitStatus>,
    /// Whether it was killed at its time limit. Agents before revision 2 have none.
    #[serde(default)]
    pub timed_out: bool,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "SaidExit")]
pub enum ExitStatus {
    /// It exited, with a code from 0 to 255.
    Code(i32),
    /// A signal from 1 to 64 killed it.
    Signal(i32),
}

/// An exit status as received, before its number is checked.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SaidExit {
    Code(i32),
    Signal(i32),
}

impl TryFrom<SaidExit> for ExitStatus {
    type Error = String;

    fn try_from(said: SaidExit) -> Result<Self, String> {
        match said {
            SaidExit::Code(code @ 0..=255) => Ok(Self::Code(code)),
            SaidExit::Signal(signal @ 1..=64) => Ok(Self::Signal(signal)),
            SaidExit::Code(number) | SaidExit::Signal(number) => Err(format!("no process ends with {number}")),
        }
    }
}

impl ExitStatus {
    /// The code as a shell reports it: the exit code, or 128 plus the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// An output stream of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// Standard output; with a terminal, all output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An offset in each output stream, in bytes from the process's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Offsets {
    /// Offset in standard output.
    pub stdout: u64,
    /// Offset in standard error.
    pub stderr: u64,
}

impl Offsets {
    /// The start of the process.
    pub const BEGINNING: Self = Self { stdout: 0, stderr: 0 };
    /// The current end: only later output is read. Any offset beyond the end means the end.
    pub const NOW: Self = Self { stdout: u64::MAX, stderr: u64::MAX };
    /// Where the last reader was whose host left without it, as at a suspend; the current end if
    /// there is no such reader, or if another one has continued there. Agents before revision 4
    /// know only the current end.
    pub const CONTINUED: Self = Self { stdout: u64::MAX - 1, stderr: u64::MAX - 1 };
}

/// A signal, by its Linux number from 1 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Signal(i32);

impl Signal {
    /// Tells a process that its terminal has closed.
    pub const HANGUP: Self = Self(1);
    /// The signal that Ctrl-C sends.
    pub const INTERRUPT: Self = Self(2);
    /// Kills a process, which can neither catch nor ignore it.
    pub const KILL: Self = Self(9);
    /// Asks a process to end.
    pub const TERMINATE: Self = Self(15);

    /// Its number.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl TryFrom<i32> for Signal {
    type Error = Failure;

    fn try_from(number: i32) -> Result<Self, Failure> {
        if (1..=31).contains(&number) {
            Ok(Self(number))
        } else {
            Err(Failure::Invalid { reason: format!("{number} is not a signal: signals are 1 to 31") })
        }
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> Self {
        signal.0
    }
}

/// The recipient of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Only the process.
    Process,
    /// The process and its group: its descendants, except those that have left the group.
    Group,
}
