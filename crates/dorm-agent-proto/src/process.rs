//! Words about processes inside a sandbox.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::guest::{GuestPath, GuestString, Variable};
use crate::{Failure, OUTPUT_KEPT};

/// What to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The command and its arguments. A command without `/` is looked for in the process's own `PATH`.
    pub arguments: Vec<GuestString>,
    /// Variables on top of the sandbox's own; the last of a name counts.
    pub variables: Vec<Variable>,
    /// Where it starts; by default the user's home, or `/` where that is missing.
    pub directory: Option<GuestPath>,
    /// As whom it runs; by default root.
    pub user: Option<User>,
    /// Gives it a terminal of that size. Its output is then all [`OutputKind::Stdout`].
    pub terminal: Option<TerminalSize>,
    /// Its standard input. A process with a terminal reads that instead.
    pub stdin: Stdin,
    /// How many bytes of each output stream are kept for readers.
    pub output_kept: u32,
    /// Whether a reader follows at once.
    pub first_reader: FirstReader,
    /// A word the caller finds it by in the list of processes, of at most [`LABEL_MAX`] bytes.
    pub label: Option<String>,
}

impl ProcessSpec {
    /// A command with all else at its default: no terminal, no input, 1 MiB of each output kept.
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
    /// What is written to it, until it is closed.
    Pipe,
}

/// Whether output may be dropped before the first reader has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstReader {
    /// It may: the oldest bytes go when more than is kept was written, and the process never waits.
    #[default]
    NotExpected,
    /// A reader comes at once; the process waits for it, some seconds at most.
    Expected,
}

/// Somebody inside the sandbox, as its own `/etc/passwd` says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum User {
    /// By name.
    Name(String),
    /// By number. Without a group, the one the user list gives, or the same number.
    Id {
        /// The user's number.
        uid: u32,
        /// The group's number.
        gid: Option<u32>,
    },
}

impl FromStr for User {
    type Err = Failure;

    /// `name`, `uid` or `uid:gid`.
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
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// A started process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessStarted {
    /// What later calls name it by. Never used again in this sandbox or one that descends from it.
    pub process: u64,
    /// Its process id inside.
    pub pid: u32,
}

/// The longest label of a process, in bytes.
pub const LABEL_MAX: usize = 1024;

/// How many bytes of arguments, and as many of variables, a [`ProcessStatus`] has. Six times that is the most that they
/// take in JSON, and fits an event.
pub const STATUS_BYTES: usize = 64 * 1024;

/// What is known of a process. Ended ones are kept for a while, about 256 of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its handle.
    pub process: u64,
    /// Its process id inside; may belong to another one when it has ended.
    pub pid: u32,
    /// What it was started with: as many as come to [`STATUS_BYTES`] bytes, each with one more.
    pub arguments: Vec<GuestString>,
    /// Where it started.
    pub directory: GuestPath,
    /// The variables it was given on top of the sandbox's: as many as come to [`STATUS_BYTES`] bytes.
    pub variables: Vec<Variable>,
    /// As whom, if it was said.
    pub user: Option<User>,
    /// The caller's word for it.
    pub label: Option<String>,
    /// Its terminal's size, if it has one.
    pub terminal: Option<TerminalSize>,
    /// When it started, in milliseconds since 1970, by the sandbox's clock.
    pub started_unix_ms: u64,
    /// How much it has written so far; the end of each output stream.
    pub written: Offsets,
    /// How it ended, if it has.
    pub exit: Option<ExitStatus>,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "SaidExit")]
pub enum ExitStatus {
    /// By itself, with a code from 0 to 255.
    Code(i32),
    /// By a signal, from 1 to 64.
    Signal(i32),
}

/// The same, as somebody says it.
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
    /// The code as a shell gives it: the process's own, or 128 and the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Which of a process's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// Standard output, or all that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A place in each output stream, in bytes from the process's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Offsets {
    /// In standard output.
    pub stdout: u64,
    /// In standard error.
    pub stderr: u64,
}

impl Offsets {
    /// From the process's start.
    pub const BEGINNING: Self = Self { stdout: 0, stderr: 0 };
    /// Only what comes from now on. Any place behind the end means the end.
    pub const NOW: Self = Self { stdout: u64::MAX, stderr: u64::MAX };
}

/// A signal, by its Linux number from 1 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Signal(i32);

impl Signal {
    /// Asks a process to hang up.
    pub const HANGUP: Self = Self(1);
    /// What Ctrl-C sends.
    pub const INTERRUPT: Self = Self(2);
    /// Ends a process that cannot refuse.
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

/// Whom a signal goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The process alone.
    Process,
    /// The process and its group: what it started, unless that left the group.
    Group,
}
