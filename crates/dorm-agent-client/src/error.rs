//! Why a call to the agent failed.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use dorm_agent_proto::{Failure, GuestPath, GuestString, legible};
use thiserror::Error;

/// Why a call to the agent failed. All but [`AgentError::Closed`], [`AgentError::Protocol`], [`AgentError::Version`] and
/// [`AgentError::Body`] are the agent's own answers: the connection is well.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The stream has ended; whether the call took effect is not known. Connect again.
    #[error("the connection to the agent in the sandbox has ended")]
    Closed {
        /// Why, if the stream failed rather than ended.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// The agent said something that makes no sense here. The connection is given up.
    #[error("the agent in the sandbox violates the protocol: it sent {0}")]
    Protocol(String),
    /// The agent is from another build.
    #[error("the agent in the sandbox uses protocol version {agent}, this host version {host}: restart the sandbox")]
    Version {
        /// The agent's version.
        agent: u16,
        /// This host's version.
        host: u16,
    },
    /// What was to be written could not be brought; nothing was changed.
    #[error("cannot read the content to write to '{path}' in the sandbox")]
    Body {
        /// Where it was to be written.
        path: GuestPath,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// Nothing is there.
    #[error("there is no '{0}' in the sandbox")]
    NotFound(GuestPath),
    /// The sandbox's own permissions forbid it.
    #[error("permission denied for '{0}' in the sandbox")]
    Denied(GuestPath),
    /// Something is there already.
    #[error("'{0}' already exists in the sandbox")]
    Exists(GuestPath),
    /// A directory was needed.
    #[error("'{0}' in the sandbox is not a directory")]
    NotADirectory(GuestPath),
    /// A file was needed.
    #[error("'{0}' in the sandbox is a directory")]
    IsADirectory(GuestPath),
    /// The directory has entries.
    #[error("the directory '{0}' in the sandbox is not empty: remove it recursively")]
    NotEmpty(GuestPath),
    /// A device, socket or pipe cannot be read or written as a file.
    #[error("'{0}' in the sandbox is not a regular file")]
    NotAFile(GuestPath),
    /// The sandbox's disk is full.
    #[error("no space for '{0}' on the sandbox's disk")]
    NoSpace(GuestPath),
    /// A program works on a volume that is to go.
    #[error(
        "a program in the sandbox uses '{0}': end the program, or close its files and change its working directory"
    )]
    MountBusy(GuestPath),
    /// No such command in the process's `PATH`.
    #[error("command not found in the sandbox: '{0}'")]
    CommandNotFound(GuestString),
    /// The command is there but cannot be run.
    #[error("the sandbox cannot run '{command}': {reason}")]
    CannotExecute {
        /// Which.
        command: GuestString,
        /// What the sandbox's kernel said.
        reason: String,
    },
    /// The sandbox's user list has no such user.
    #[error("there is no user '{0}' in the sandbox")]
    NoUser(String),
    /// Never existed, has ended, or was forgotten.
    #[error("there is no process {0} in the sandbox, or it has ended")]
    NoProcess(u64),
    /// It was started without input, or its input is closed.
    #[error("the standard input of process {0} is closed")]
    InputClosed(u64),
    /// It was started without one.
    #[error("process {0} has no terminal")]
    NoTerminal(u64),
    /// Nobody listens on that port.
    #[error("no process listens on port {0} in the sandbox")]
    Refused(u16),
    /// There are more than are listed at once.
    #[error("there are more than {0} processes in the sandbox: list them page by page")]
    TooMany(usize),
    /// Too many calls at once.
    #[error("the agent in the sandbox has too many open calls: end some of them first")]
    Busy,
    /// The request makes no sense.
    #[error("the agent in the sandbox refuses the request: {0}")]
    Invalid(String),
    /// Anything else.
    #[error("the sandbox cannot {operation} '{operand}': {reason}")]
    Other {
        /// What was tried.
        operation: String,
        /// On what.
        operand: GuestString,
        /// What the sandbox's kernel said.
        reason: String,
    },
}

impl From<Failure> for AgentError {
    /// Its texts are the agent's own.
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
            Failure::InputClosed { process } => Self::InputClosed(process),
            Failure::NoTerminal { process } => Self::NoTerminal(process),
            Failure::Refused { port } => Self::Refused(port),
            Failure::Busy => Self::Busy,
            Failure::Invalid { reason } => Self::Invalid(legible(&reason)),
            Failure::Other { operation, operand, reason } => {
                Self::Other { operation: legible(&operation), operand, reason: legible(&reason) }
            }
        }
    }
}
