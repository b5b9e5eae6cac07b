//! The messages themselves.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::file::{Entry, FileStat, Parents, RemoveScope, Scope, WatchEvent, WriteOptions};
use crate::guest::GuestPath;
use crate::identity::{Account, Identity, Metrics, Resumed};
use crate::mount::{Busy, GuestMount};
use crate::process::{
    ExitStatus, Offsets, OutputKind, ProcessSpec, ProcessStarted, ProcessStatus, Signal, Target, TerminalSize, User,
};

/// Random bytes by which a host knows the answer to its own resync. Nobody inside can guess them beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; 16]);

/// The host begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resync {
    /// Comes back in the hello.
    pub nonce: Nonce,
    /// The generation the host believes this run to be.
    pub generation: u64,
    /// The host's [`crate::VERSION`].
    pub version: u16,
}

impl Resync {
    pub(crate) const LENGTH: usize = 26;

    /// As the payload of a frame.
    pub fn to_bytes(&self) -> [u8; 26] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.nonce.0);
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// From the payload of a frame, if it is one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        Some(Self {
            nonce: Nonce(bytes[..16].try_into().ok()?),
            generation: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            version: u16::from_le_bytes(bytes[24..].try_into().ok()?),
        })
    }
}

/// The agent's answer to a resync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's [`crate::VERSION`].
    pub version: u16,
    /// Its own process id; 1 in a sandbox.
    pub pid: u32,
    /// The generation it was last told by [`Request::Resumed`]; 0 before the first.
    pub generation: u64,
}

/// What the host may ask for. The comment says what follows the answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Answer at once: [`Answer::Done`].
    Ping,
    /// Send nothing after the answer until the host speaks again: [`Answer::Done`].
    Quiesce,
    /// Take a new identity: [`Answer::Resumed`].
    Resumed(Identity),
    /// Start a process: [`Answer::Started`].
    Start(ProcessSpec),
    /// List processes: [`Answer::Follows`], then [`Event::Process`] each.
    Processes,
    /// Follow a process's output: [`Answer::Follows`], then data with an [`OutputHeader`] and [`Event`]s.
    Output {
        /// Which process.
        process: u64,
        /// From where.
        from: Offsets,
    },
    /// Write the data that the host sends to a process's input: [`Answer::Done`] when all of it is with the kernel.
    WriteStdin {
        /// Which process.
        process: u64,
    },
    /// Close a process's input: [`Answer::Done`].
    CloseStdin {
        /// Which process.
        process: u64,
    },
    /// Send a signal: [`Answer::Done`].
    Signal {
        /// Which process.
        process: u64,
        /// Which signal.
        signal: Signal,
        /// To whom of it.
        target: Target,
    },
    /// Change a terminal's size: [`Answer::Done`].
    Resize {
        /// Which process.
        process: u64,
        /// The new size.
        size: TerminalSize,
    },
    /// Wait for a process's end: [`Answer::Exited`].
    Wait {
        /// Which process.
        process: u64,
    },
    /// Read a file: [`Answer::Stat`], then its data.
    ReadFile {
        /// Which file.
        path: GuestPath,
        /// From which byte.
        offset: u64,
        /// How many bytes at most.
        length: Option<u64>,
    },
    /// Write a file from the data that the host sends: [`Answer::Stat`] when it stands under its name.
    WriteFile {
        /// Which file.
        path: GuestPath,
        /// How.
        options: WriteOptions,
    },
    /// List a directory: [`Answer::Follows`], then [`Event::Entry`] each, a directory before what is in it.
    List {
        /// Which directory.
        path: GuestPath,
        /// How many levels; 1 is its own entries.
        depth: u32,
    },
    /// Ask about a path: [`Answer::Stat`].
    Stat {
        /// Which.
        path: GuestPath,
    },
    /// Make a directory: [`Answer::Stat`]. With [`Parents::Create`] it may exist already.
    MakeDirectory {
        /// Which.
        path: GuestPath,
        /// What to do about missing ones above it.
        parents: Parents,
        /// Whose it and new ones above it shall be; by default root's.
        owner: Option<User>,
    },
    /// Remove: [`Answer::Done`].
    Remove {
        /// What.
        path: GuestPath,
        /// How much.
        scope: RemoveScope,
    },
    /// Rename, replacing what is there as rename(2) does: [`Answer::Stat`].
    Rename {
        /// The old name.
        from: GuestPath,
        /// The new name.
        to: GuestPath,
    },
    /// Watch a directory: [`Answer::Follows`] when nothing escapes any more, then [`Event::Watch`].
    Watch {
        /// Which.
        path: GuestPath,
        /// How far.
        scope: Scope,
    },
    /// What the sandbox uses: [`Answer::Metrics`].
    Metrics,
    /// Which process has the most memory: [`Answer::OomVictim`].
    OomVictim,
    /// Connect to a port on the sandbox's loopback: [`Answer::Follows`], then data both ways.
    Dial {
        /// Which.
        port: u16,
    },
    /// Make volumes appear at these paths and at no others: [`Answer::Done`].
    Mount {
        /// Which.
        mounts: Vec<GuestMount>,
        /// What to do about one that goes and is in use.
        busy: Busy,
    },
    /// Give every program that has a deleted file of a volume open a copy of it on the sandbox's own disk: [`Answer::Done`].
    ExchangeDeleted,
    /// Look a user up: [`Answer::Account`].
    Account {
        /// Who.
        user: User,
    },
}

/// What a request is answered with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// A stream follows.
    Follows,
    /// The identity was taken.
    Resumed(Resumed),
    /// The process runs.
    Started(ProcessStarted),
    /// The process has ended.
    Exited(ExitStatus),
    /// The file is this.
    Stat(FileStat),
    /// What is used.
    Metrics(Metrics),
    /// The process id, if any process but the agent lives.
    OomVictim(Option<u32>),
    /// The user.
    Account(Account),
}

/// One fact of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Output that is no longer kept, or never was sent in time.
    Lost {
        /// Which output.
        kind: OutputKind,
        /// Where the gap begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// The process has ended and all it wrote until then was sent. Nothing follows.
    Exited(ExitStatus),
    /// One process of a list.
    Process(ProcessStatus),
    /// One entry of a directory.
    Entry(Entry),
    /// Something changed.
    Watch(WatchEvent),
}

/// Why one side sends nothing more on a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All was sent.
    Complete,
    /// The rest cannot be sent.
    Failed(Failure),
    /// The host cannot bring the rest of what it was writing: forget all of it.
    Abandoned,
}

/// What stands before the bytes in a data frame of an output stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputHeader {
    /// Which output.
    pub kind: OutputKind,
    /// Where its first byte stands.
    pub offset: u64,
}

impl OutputHeader {
    /// Its length.
    pub const LENGTH: usize = 9;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = match self.kind {
            OutputKind::Stdout => 1,
            OutputKind::Stderr => 2,
        };
        bytes[1..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Splits a data frame's payload, if it begins with a header and its bytes can stand there.
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (header, bytes) = payload.split_first_chunk::<{ Self::LENGTH }>()?;
        let kind = match header[0] {
            1 => OutputKind::Stdout,
            2 => OutputKind::Stderr,
            _ => return None,
        };
        let offset = u64::from_le_bytes(header[1..].try_into().ok()?);
        offset.checked_add(u64::try_from(bytes.len()).ok()?)?;
        Some((Self { kind, offset }, bytes))
    }
}
