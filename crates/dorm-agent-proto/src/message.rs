//! The messages between host and agent.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::file::{
    Attribute, DetailedEntry, Entry, FileStat, NumberedEvent, Parents, RemoveScope, Scope, WatchEvent, WatcherStatus,
    WriteAt, WriteOptions,
};
use crate::guest::{GuestPath, GuestString};
use crate::identity::{Account, Identity, Metrics, Resumed};
use crate::mount::{Busy, GuestMount};
use crate::name::ServiceName;
use crate::process::{
    ExitStatus, Offsets, OutputKind, ProcessKey, ProcessSpec, ProcessStarted, ProcessStatus, Signal, Target,
    TerminalSize, User,
};
use crate::search::{LineMatch, SearchSpec, SearchSummary};
use crate::service::{ServiceEvent, ServiceSpec, ServiceStatus};

/// Random bytes by which a host recognises the answer to its own resync. Programs in the sandbox
/// cannot guess them beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; 16]);

/// The payload of a host's first frame, with which it starts again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resync {
    /// The nonce that the hello repeats.
    pub nonce: Nonce,
    /// The generation that this run has according to the host.
    pub generation: u64,
    /// The host's [`crate::VERSION`].
    pub version: u16,
}

impl Resync {
    pub(crate) const LENGTH: usize = 26;

    /// Encodes it as the payload of a frame.
    pub fn to_bytes(&self) -> [u8; 26] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.nonce.0);
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// Decodes the payload of a frame; `None` if the length is wrong.
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
    /// The agent's own process id; 1 in a sandbox.
    pub pid: u32,
    /// The generation of the last [`Request::Resumed`]; 0 before the first.
    pub generation: u64,
    /// The agent's [`crate::REVISION`]. The agent of 0.1.0 reports none, which is 0.
    #[serde(default)]
    pub revision: u16,
}

/// A request of the host. Each comment names the answer, and then what follows the answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Check that the agent answers: [`Answer::Done`].
    Ping,
    /// Send nothing after the answer until the host sends again: [`Answer::Done`].
    Quiesce,
    /// Apply a new identity: [`Answer::Resumed`].
    Resumed(Identity),
    /// Start a process: [`Answer::Started`].
    Start(ProcessSpec),
    /// List processes: [`Answer::Follows`], then an [`Event::Process`] for each.
    Processes,
    /// Follow a process's output: [`Answer::Follows`], then data with an [`OutputHeader`] and
    /// [`Event`]s.
    Output {
        /// The process's handle.
        process: u64,
        /// The offsets at which to begin.
        from: Offsets,
    },
    /// Write the data that the host sends to a process's input: [`Answer::Done`] when the kernel
    /// has accepted all of it.
    WriteStdin {
        /// The process's handle.
        process: u64,
    },
    /// Close a process's input: [`Answer::Done`].
    CloseStdin {
        /// The process's handle.
        process: u64,
    },
    /// Send a signal to a process: [`Answer::Done`].
    Signal {
        /// The process's handle.
        process: u64,
        /// The signal.
        signal: Signal,
        /// Whether its process group gets the signal too.
        target: Target,
    },
    /// Change a terminal's size: [`Answer::Done`].
    Resize {
        /// The process's handle.
        process: u64,
        /// The new size.
        size: TerminalSize,
    },
    /// Wait until a process ends: [`Answer::Exited`].
    Wait {
        /// The process's handle.
        process: u64,
    },
    /// Read a file: [`Answer::Stat`], then its data.
    ReadFile {
        /// The file's path.
        path: GuestPath,
        /// The first byte to read.
        offset: u64,
        /// The largest number of bytes to read; by default all.
        length: Option<u64>,
    },
    /// Write a file from the data that the host sends: [`Answer::Stat`] when the file is complete
    /// under its name.
    WriteFile {
        /// The file's path.
        path: GuestPath,
        /// Mode, owner and treatment of missing parents.
        options: WriteOptions,
    },
    /// List a directory: [`Answer::Follows`], then an [`Event::Entry`] for each entry, a directory
    /// before its entries.
    List {
        /// The directory's path.
        path: GuestPath,
        /// The number of levels; 1 lists only its own entries.
        depth: u32,
    },
    /// Get the metadata of a path: [`Answer::Stat`].
    Stat {
        /// The path.
        path: GuestPath,
    },
    /// Create a directory: [`Answer::Stat`]. With [`Parents::Create`] it may exist already.
    MakeDirectory {
        /// The directory's path.
        path: GuestPath,
        /// How to treat missing parent directories.
        parents: Parents,
        /// The owner of every directory that is created; by default root.
        owner: Option<User>,
    },
    /// Remove a file or directory: [`Answer::Done`].
    Remove {
        /// The path.
        path: GuestPath,
        /// Whether a directory may have entries.
        scope: RemoveScope,
    },
    /// Rename, replacing an existing target as rename(2) does: [`Answer::Stat`].
    Rename {
        /// The old path.
        from: GuestPath,
        /// The new path.
        to: GuestPath,
    },
    /// Watch a directory: [`Answer::Follows`] once no later change can be missed, then an
    /// [`Event::Watch`] for each.
    Watch {
        /// The directory's path.
        path: GuestPath,
        /// Whether changes in directories below it are reported too.
        scope: Scope,
    },
    /// Measure the resource usage of the sandbox: [`Answer::Metrics`].
    Metrics,
    /// Name the process with the most memory: [`Answer::OomVictim`].
    OomVictim,
    /// Connect to a port on the sandbox's loopback: [`Answer::Follows`], then data both ways.
    Dial {
        /// The port.
        port: u16,
    },
    /// Mount volumes at exactly these paths, and unmount all others: [`Answer::Done`].
    Mount {
        /// The volumes and their paths.
        mounts: Vec<GuestMount>,
        /// How to treat a volume that must be unmounted and is in use.
        busy: Busy,
    },
    /// For every program that has a deleted file of a volume open, replace that file by a copy on
    /// the sandbox's own disk: [`Answer::Done`].
    ExchangeDeleted,
    /// Look a user up: [`Answer::Account`].
    Account {
        /// The user's name or number.
        user: User,
    },
    /// Write the data that the host sends into a file, which keeps its inode: [`Answer::Stat`] when
    /// all of it is written.
    WriteInPlace {
        /// The file's path.
        path: GuestPath,
        /// Where the data goes.
        at: WriteAt,
        /// Mode and owner, which an existing file keeps by default; treatment of missing parents.
        options: WriteOptions,
    },
    /// Rename as [`Request::Rename`] does, and create missing parents of the new path:
    /// [`Answer::Stat`].
    Move {
        /// The old path.
        from: GuestPath,
        /// The new path.
        to: GuestPath,
        /// The owner of created parents; by default root.
        owner: Option<User>,
    },
    /// Create a directory that must not exist yet, and its missing parents: [`Answer::Stat`].
    MakeNewDirectory {
        /// The directory's path.
        path: GuestPath,
        /// The owner of every directory that is created; by default root.
        owner: Option<User>,
    },
    /// Get the `user.*` extended attributes of a file: [`Answer::Attributes`]. Follows links.
    Attributes {
        /// The file's path.
        path: GuestPath,
    },
    /// Change `user.*` extended attributes of a file, one after another:
    /// [`Answer::Attributes`] with all that it has then. Follows links.
    SetAttributes {
        /// The file's path.
        path: GuestPath,
        /// The attributes to set.
        set: Vec<Attribute>,
        /// The names of attributes to remove afterwards; missing ones are ignored.
        remove: Vec<GuestString>,
    },
    /// Watch a directory and keep its changes until the host asks for them: [`Answer::Watcher`]
    /// once no later change can be missed.
    CreateWatcher {
        /// The directory's path.
        path: GuestPath,
        /// Whether changes in directories below it are kept too.
        scope: Scope,
    },
    /// List watchers: [`Answer::Follows`], then an [`Event::Watcher`] for each.
    Watchers,
    /// Get the changes that a watcher has kept, with all that happened before the request:
    /// [`Answer::Follows`], then an [`Event::Numbered`] for each.
    WatcherEvents {
        /// The watcher's handle.
        watcher: u64,
        /// The number of the last change that the host has; it and those before it are forgotten.
        /// 0 for none.
        after: u64,
        /// The largest number of changes to send.
        most: u32,
    },
    /// Remove a watcher with the changes that it has kept: [`Answer::Done`].
    RemoveWatcher {
        /// The watcher's handle.
        watcher: u64,
    },
    /// Kill a process and every process that descends from it, also in other groups and sessions:
    /// [`Answer::Killed`]. The process itself may have ended.
    KillTree {
        /// The process's handle.
        process: u64,
    },
    /// Follow a process's output as [`Request::Output`] does, with the time at which each piece was
    /// read in its [`OutputHeader`]. The last event is [`Event::Ended`].
    TimedOutput {
        /// The process's handle.
        process: u64,
        /// The offsets at which to begin.
        from: Offsets,
    },
    /// Start a process, and kill it and its process group when it has run for some time:
    /// [`Answer::Started`]. Time between [`Request::Quiesce`] and the next request does not count.
    StartWithin {
        /// The process.
        spec: ProcessSpec,
        /// The time, in milliseconds.
        limit_ms: u64,
    },
    /// Start a process whose input is these bytes and then ends: [`Answer::Started`]. The input
    /// belongs to the process, and does not end with the host.
    StartWithInput {
        /// The process. Its own input counts as [`crate::Stdin::Pipe`].
        spec: ProcessSpec,
        /// The whole input.
        #[serde(with = "crate::guest::as_base64")]
        input: Vec<u8>,
        /// The time limit of [`Request::StartWithin`], if it has one.
        limit_ms: Option<u64>,
    },
    /// Get the status of a process: [`Answer::Follows`], then one [`Event::Process`].
    Process {
        /// The process's handle.
        process: u64,
    },
    /// Find processes: [`Answer::Follows`], then an [`Event::Process`] for each, oldest first.
    FindProcesses {
        /// The key that they have.
        key: ProcessKey,
    },
    /// Describe a path, and list it if it is a directory: [`Answer::Follows`], then an
    /// [`Event::Detailed`] for each entry, a directory before its entries.
    Describe {
        /// The path. A link is described, not followed, at depth 0; it is followed to be listed.
        path: GuestPath,
        /// The number of levels; 0 describes the path itself alone, and others do not include it.
        depth: u32,
    },
    /// Search for files, or for lines in them: [`Answer::Follows`], then an [`Event::Entry`] or
    /// [`Event::Line`] for each result, and [`Event::Searched`]. Does not follow links.
    Search(SearchSpec),
    /// Start a service: [`Answer::Started`] with its first process. One of the same name that is
    /// over is replaced.
    StartService(ServiceSpec),
    /// List services: [`Answer::Follows`], then an [`Event::Service`] for each.
    Services,
    /// Get the status of a service: [`Answer::Follows`], then one [`Event::Service`].
    Service {
        /// Its name.
        name: ServiceName,
    },
    /// Stop a service: its process gets SIGTERM, and after some time all of its tree is killed:
    /// [`Answer::Done`]. One that is over stays as it is.
    StopService {
        /// Its name.
        name: ServiceName,
        /// The time, in milliseconds.
        grace_ms: u64,
    },
    /// Remove a service that is over, with its log and its events: [`Answer::Done`].
    RemoveService {
        /// Its name.
        name: ServiceName,
    },
    /// Follow the output of all processes of a service, as [`Request::TimedOutput`] does for one.
    /// It ends when the service is over.
    ServiceLog {
        /// Its name.
        name: ServiceName,
        /// The offsets at which to begin.
        from: Offsets,
    },
    /// Get the events of a service: [`Answer::Follows`], then an [`Event::ServiceEvent`] for each.
    /// About 1,000 are kept.
    ServiceEvents {
        /// Its name.
        name: ServiceName,
        /// The number of the last event that the host has; 0 for none.
        after: u64,
        /// The largest number of events to send.
        most: u32,
    },
}

/// A request that older agents do not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    /// The first [`crate::REVISION`] with the request.
    pub revision: u16,
    /// The action that an older agent cannot do, as a verb with its object.
    pub ability: &'static str,
}

impl Request {
    /// Returns since when agents know this request; `None` if all do.
    pub fn added(&self) -> Option<Added> {
        let added = |revision, ability| Some(Added { revision, ability });
        match self {
            Self::Ping
            | Self::Quiesce
            | Self::Resumed(_)
            | Self::Start(_)
            | Self::Processes
            | Self::Output { .. }
            | Self::WriteStdin { .. }
            | Self::CloseStdin { .. }
            | Self::Signal { .. }
            | Self::Resize { .. }
            | Self::Wait { .. }
            | Self::ReadFile { .. }
            | Self::WriteFile { .. }
            | Self::List { .. }
            | Self::Stat { .. }
            | Self::MakeDirectory { .. }
            | Self::Remove { .. }
            | Self::Rename { .. }
            | Self::Watch { .. }
            | Self::Metrics
            | Self::OomVictim
            | Self::Dial { .. }
            | Self::Mount { .. }
            | Self::ExchangeDeleted
            | Self::Account { .. } => None,
            Self::WriteInPlace { .. } => added(1, "write a file in place"),
            Self::Move { .. } => added(1, "create the parents of a renamed file"),
            Self::MakeNewDirectory { .. } => added(1, "create a directory with parents only if it is new"),
            Self::Attributes { .. } => added(1, "read extended attributes"),
            Self::SetAttributes { .. } => added(1, "change extended attributes"),
            Self::CreateWatcher { .. } | Self::Watchers | Self::WatcherEvents { .. } | Self::RemoveWatcher { .. } => {
                added(1, "keep changes of files for watchers")
            }
            Self::KillTree { .. } => added(1, "kill all processes that descend from one"),
            Self::TimedOutput { .. } => added(2, "tell when output was written"),
            Self::StartWithin { .. } => added(2, "limit the time of a process"),
            Self::StartWithInput { .. } => added(5, "start a process with all of its input"),
            Self::Process { .. } => added(2, "describe one process"),
            Self::FindProcesses { .. } => added(4, "find processes"),
            Self::Describe { .. } => added(4, "describe files with their attributes"),
            Self::Search(_) => added(3, "search in files"),
            Self::StartService(_)
            | Self::Services
            | Self::Service { .. }
            | Self::StopService { .. }
            | Self::RemoveService { .. }
            | Self::ServiceLog { .. }
            | Self::ServiceEvents { .. } => added(3, "supervise services"),
        }
    }
}

/// The answer to a request that succeeded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// A stream of data or events follows.
    Follows,
    /// The identity was applied; the report has the result of each part.
    Resumed(Resumed),
    /// The process was started.
    Started(ProcessStarted),
    /// The process has ended.
    Exited(ExitStatus),
    /// The metadata of the file.
    Stat(FileStat),
    /// The resource usage.
    Metrics(Metrics),
    /// The process id; `None` if only the agent is alive.
    OomVictim(Option<u32>),
    /// The user.
    Account(Account),
    /// The extended attributes of the file, ordered by name.
    Attributes(Vec<Attribute>),
    /// The handle of the new watcher.
    Watcher(u64),
    /// The number of processes that were killed.
    Killed(u32),
}

/// One item of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A part of the output is missing: it is no longer kept, or was not sent in time.
    Lost {
        /// The output stream.
        kind: OutputKind,
        /// The offset at which the gap begins.
        offset: u64,
        /// The length of the gap, in bytes.
        bytes: u64,
    },
    /// The process has ended and all of its output until then was sent. It is the last event.
    Exited(ExitStatus),
    /// One process of a list.
    Process(ProcessStatus),
    /// One entry of a directory.
    Entry(Entry),
    /// One entry of a [`Request::Describe`].
    Detailed(DetailedEntry),
    /// A change in a watched directory.
    Watch(WatchEvent),
    /// One watcher of a list.
    Watcher(WatcherStatus),
    /// A change that a watcher has kept.
    Numbered(NumberedEvent),
    /// A line that a search has found.
    Line(LineMatch),
    /// The end of a search. It is the last event.
    Searched(SearchSummary),
    /// One service of a list.
    Service(ServiceStatus),
    /// Something that happened to a service.
    ServiceEvent(ServiceEvent),
    /// [`Event::Exited`] of a [`Request::TimedOutput`].
    Ended {
        /// How the process ended.
        status: ExitStatus,
        /// Whether it was killed at its time limit.
        timed_out: bool,
    },
}

/// The reason why one side sends nothing more on a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Everything was sent.
    Complete,
    /// The rest cannot be sent, for this reason.
    Failed(Failure),
    /// The host cannot send the rest of its data: discard all of it.
    Abandoned,
}

/// The header of a data frame of an output stream, before its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputHeader {
    /// The output stream.
    pub kind: OutputKind,
    /// The offset of the frame's first byte in that stream.
    pub offset: u64,
    /// When the agent read the bytes, in milliseconds since 1970 by the sandbox's clock; only after
    /// [`Request::TimedOutput`].
    pub read_unix_ms: Option<u64>,
}

impl OutputHeader {
    /// The length of the longest header, in bytes.
    pub const LENGTH_MAX: usize = 17;

    /// Encodes the header.
    pub fn to_bytes(self) -> Vec<u8> {
        let kind = match (self.kind, self.read_unix_ms) {
            (OutputKind::Stdout, None) => 1,
            (OutputKind::Stderr, None) => 2,
            (OutputKind::Stdout, Some(_)) => 3,
            (OutputKind::Stderr, Some(_)) => 4,
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend(self.read_unix_ms.iter().flat_map(|time| time.to_le_bytes()));
        bytes
    }

    /// Splits the payload of a data frame into header and bytes; `None` if the header is not valid
    /// or the offset would overflow.
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = payload.split_first()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (kind, read_unix_ms, bytes) = match kind {
            1 => (OutputKind::Stdout, None, rest),
            2 => (OutputKind::Stderr, None, rest),
            3 | 4 => {
                let (time, bytes) = rest.split_first_chunk()?;
                let kind = if *kind == 3 { OutputKind::Stdout } else { OutputKind::Stderr };
                (kind, Some(u64::from_le_bytes(*time)), bytes)
            }
            _ => return None,
        };
        let offset = u64::from_le_bytes(*offset);
        offset.checked_add(u64::try_from(bytes.len()).ok()?)?;
        Some((Self { kind, offset, read_unix_ms }, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::OutputHeader;
    use crate::process::OutputKind;

    #[test]
    fn a_header_of_output_is_read_as_it_was_written() {
        for kind in [OutputKind::Stdout, OutputKind::Stderr] {
            for read_unix_ms in [None, Some(0x0102_0304_0506)] {
                let header = OutputHeader { kind, offset: 77, read_unix_ms };
                let bytes = header.to_bytes();
                assert!(bytes.len() <= OutputHeader::LENGTH_MAX);
                assert_eq!(OutputHeader::split(&[&bytes[..], b"text"].concat()), Some((header, &b"text"[..])));
                assert_eq!(OutputHeader::split(&bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(OutputHeader::split(&[5; 30]), None);
        let last = OutputHeader { kind: OutputKind::Stdout, offset: u64::MAX, read_unix_ms: None };
        assert_eq!(OutputHeader::split(&[&last.to_bytes()[..], b"x"].concat()), None);
    }
}
