//! Errors of calls to the agent.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use dorm_agent_proto::{Failure, GuestPath, GuestString, ServiceName, legible};
use thiserror::Error;

/// Why a call to the agent failed. All but [`AgentError::Closed`], [`AgentError::Protocol`],
/// [`AgentError::Version`] and [`AgentError::Body`] are the agent's own answers: the connection is
/// still usable.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The connection has ended; it is unknown whether the call took effect. Connect again.
    #[error("the connection to the agent in the sandbox has ended")]
    Closed {
        /// The error of the stream, unless it ended regularly.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// The agent violated the protocol. The connection is closed.
    #[error("the agent in the sandbox violates the protocol: it sent {0}")]
    Protocol(String),
    /// The agent uses another protocol version.
    #[error(
        "the agent in the sandbox uses protocol version {agent}, and this host version {host}; boot the sandbox again: \
         take a filesystem snapshot of it, and rewind it to that"
    )]
    Version {
        /// The agent's version.
        agent: u16,
        /// This host's version.
        host: u16,
    },
    /// The sandbox's memory contains the agent of an earlier release, which does not know the
    /// request. Nothing was sent.
    #[error("the agent in the sandbox is from an earlier release and cannot {ability}")]
    Older {
        /// The action that it cannot do, as a verb with its object.
        ability: &'static str,
    },
    /// The content to write could not be read. The file is unchanged, or has the part that was read
    /// if it is written in place.
    #[error("cannot read the content to write to '{path}' in the sandbox")]
    Body {
        /// The path to write to.
        path: GuestPath,
        /// The cause.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The path does not exist.
    #[error("there is no '{0}' in the sandbox")]
    NotFound(GuestPath),
    /// The sandbox's own permissions forbid it.
    #[error("permission denied for '{0}' in the sandbox")]
    Denied(GuestPath),
    /// The path already exists.
    #[error("'{0}' already exists in the sandbox")]
    Exists(GuestPath),
    /// The path must be a directory.
    #[error("'{0}' in the sandbox is not a directory")]
    NotADirectory(GuestPath),
    /// The path must not be a directory.
    #[error("'{0}' in the sandbox is a directory")]
    IsADirectory(GuestPath),
    /// The directory is not empty.
    #[error("the directory '{0}' in the sandbox is not empty: remove it recursively")]
    NotEmpty(GuestPath),
    /// A device, socket or pipe cannot be read or written as a file.
    #[error("'{0}' in the sandbox is not a regular file")]
    NotAFile(GuestPath),
    /// The sandbox's disk is full.
    #[error("no space for '{0}' on the sandbox's disk")]
    NoSpace(GuestPath),
    /// A program uses a volume that must be unmounted.
    #[error(
        "a program in the sandbox uses '{0}': end the program, or close its files and change its working directory"
    )]
    MountBusy(GuestPath),
    /// The `PATH` of the process contains no such command.
    #[error("command not found in the sandbox: '{0}'")]
    CommandNotFound(GuestString),
    /// The command exists but cannot be executed.
    #[error("the sandbox cannot run '{command}': {reason}")]
    CannotExecute {
        /// The command.
        command: GuestString,
        /// The error of the sandbox's kernel.
        reason: String,
    },
    /// The sandbox's user list does not contain the user.
    #[error("there is no user '{0}' in the sandbox")]
    NoUser(String),
    /// The process never existed, has ended, or was forgotten.
    #[error("there is no process {0} in the sandbox, or it has ended")]
    NoProcess(u64),
    /// The watcher never existed, was removed, or was lost with the sandbox's memory.
    #[error("there is no watcher {0} in the sandbox")]
    NoWatcher(u64),
    /// There is no such service: it was never started, was removed, or was lost with the sandbox's
    /// memory.
    #[error("there is no service '{0}' in the sandbox")]
    NoService(ServiceName),
    /// A service of this name is not over.
    #[error("the service '{0}' is active in the sandbox")]
    ServiceActive(ServiceName),
    /// The process was started without input, or its input is closed.
    #[error("the standard input of process {0} is closed")]
    InputClosed(u64),
    /// The process was started without a terminal.
    #[error("process {0} has no terminal")]
    NoTerminal(u64),
    /// No process listens on the port.
    #[error("no process in the sandbox listens on port {0}")]
    Refused(u16),
    /// There are more processes than can be listed at once.
    #[error("there are more than {0} processes in the sandbox: list them page by page")]
    TooMany(usize),
    /// There are too many open calls.
    #[error("the agent in the sandbox has too many open calls: end some of them first")]
    Busy,
    /// The agent reads so slowly that too many bytes wait to be sent to it. Nothing was sent.
    #[error("the agent in the sandbox does not keep up with what is sent to it: try again when it has read that")]
    Behind,
    /// As many calls of one kind are open in the sandbox as may be.
    #[error("the sandbox has {most} open {of}, which is the limit: end some of them first")]
    TooManyOpen {
        /// The kind of calls, in the plural.
        of: String,
        /// How many may be open.
        most: u32,
    },
    /// The request is invalid.
    #[error("the agent in the sandbox refuses the request: {0}")]
    Invalid(String),
    /// Any other failure.
    #[error("the sandbox cannot {operation} '{operand}': {reason}")]
    Other {
        /// The operation.
        operation: String,
        /// The operand.
        operand: GuestString,
        /// The error of the sandbox's kernel.
        reason: String,
    },
}

impl From<Failure> for AgentError {
    /// The texts in the failure are the agent's own.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotFound { path } => Self::NotFound(path),
            Failure::Denied { path } => Self::Denied(path),
            Failure::Exists { path } => Self::Exists(path),
            Failure::NotADirectory { path } => Self::NotADirectory(path),
            Failure::IsADirectory { path } => Self::IsADirectory(path),
            Failure::NotEmpty { path } => Self::NotEmpty(path),
            Failure::NotAFile { path } => Self::NotAFile(path),
            Failure::NoSpace { path } => Self::NoSpace(path),
            Failure::MountBusy { path } => Self::MountBusy(path),
            Failure::CommandNotFound { command } => Self::CommandNotFound(command),
            Failure::CannotExecute { command, reason } => Self::CannotExecute { command, reason: legible(&reason) },
            Failure::NoUser { user } => Self::NoUser(legible(&user)),
            Failure::NoProcess { process } => Self::NoProcess(process),
            Failure::NoWatcher { watcher } => Self::NoWatcher(watcher),
            Failure::NoService { name } => Self::NoService(name),
            Failure::ServiceActive { name } => Self::ServiceActive(name),
            Failure::InputClosed { process } => Self::InputClosed(process),
            Failure::NoTerminal { process } => Self::NoTerminal(process),
            Failure::Refused { port } => Self::Refused(port),
            Failure::Busy => Self::Busy,
            Failure::TooManyOpen { of, most } => Self::TooManyOpen { of: legible(&of), most },
            Failure::Invalid { reason } => Self::Invalid(legible(&reason)),
            Failure::Other { operation, operand, reason } => {
                Self::Other { operation: legible(&operation), operand, reason: legible(&reason) }
            }
        }
    }
}
