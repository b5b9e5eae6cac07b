//! Reasons why the agent did not do what the host asked.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::guest::{GuestPath, GuestString};
use crate::name::ServiceName;

/// A refusal or failure, with its operand.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The path does not exist.
    #[error("there is no '{path}' in the sandbox")]
    NotFound {
        /// The path.
        path: GuestPath,
    },
    /// The sandbox's own permissions forbid the access.
    #[error("permission denied on '{path}' in the sandbox")]
    Denied {
        /// The path.
        path: GuestPath,
    },
    /// The path exists already.
    #[error("'{path}' exists in the sandbox already")]
    Exists {
        /// The path.
        path: GuestPath,
    },
    /// The path is not a directory, and the call needs one.
    #[error("'{path}' in the sandbox is not a directory")]
    NotADirectory {
        /// The path.
        path: GuestPath,
    },
    /// The path is a directory, and the call needs a file.
    #[error("'{path}' in the sandbox is a directory")]
    IsADirectory {
        /// The path.
        path: GuestPath,
    },
    /// The directory has entries, and the call removes only empty ones.
    #[error("the directory '{path}' in the sandbox is not empty: remove it with all below it")]
    NotEmpty {
        /// The directory.
        path: GuestPath,
    },
    /// A device, socket or pipe cannot be read or written as a file.
    #[error("'{path}' in the sandbox is not a regular file")]
    NotAFile {
        /// The path.
        path: GuestPath,
    },
    /// The sandbox's disk is full.
    #[error("no room for '{path}' on the sandbox's disk")]
    NoSpace {
        /// The path that was written.
        path: GuestPath,
    },
    /// A program uses a volume that must be unmounted.
    #[error("a program in the sandbox uses '{path}': end it, or have it close its files and leave the directory")]
    MountBusy {
        /// The path at which the volume is mounted.
        path: GuestPath,
    },
    /// The process's `PATH` has no such command.
    #[error("command not found in the sandbox: '{command}'")]
    CommandNotFound {
        /// The command.
        command: GuestString,
    },
    /// The command exists but cannot be run.
    #[error("the sandbox cannot run '{command}': {reason}")]
    CannotExecute {
        /// The command.
        command: GuestString,
        /// The error of the sandbox's kernel.
        reason: String,
    },
    /// The sandbox's user list has no such user.
    #[error("there is no user '{user}' in the sandbox")]
    NoUser {
        /// The user's name or number, as given by the caller.
        user: String,
    },
    /// The process never existed, has ended, or is no longer in the list of ended processes.
    #[error("there is no process {process} in the sandbox, or it has ended")]
    NoProcess {
        /// The process's handle.
        process: u64,
    },
    /// The watcher never existed, was removed, or was lost with the sandbox's memory.
    #[error("there is no watcher {watcher} in the sandbox")]
    NoWatcher {
        /// The watcher's handle.
        watcher: u64,
    },
    /// There is no such service: it was never started, was removed, or was lost with the sandbox's
    /// memory.
    #[error("there is no service '{name}' in the sandbox")]
    NoService {
        /// Its name.
        name: ServiceName,
    },
    /// A service of this name is not over.
    #[error("the service '{name}' is active in the sandbox: stop it first")]
    ServiceActive {
        /// Its name.
        name: ServiceName,
    },
    /// The process was started without input, or its input is closed.
    #[error("the input of process {process} is closed")]
    InputClosed {
        /// The process's handle.
        process: u64,
    },
    /// The process was started without a terminal.
    #[error("process {process} has no terminal")]
    NoTerminal {
        /// The process's handle.
        process: u64,
    },
    /// No program listens on the port.
    #[error("no process in the sandbox listens on port {port}")]
    Refused {
        /// The port.
        port: u16,
    },
    /// Too many calls are open at once.
    #[error("the agent in the sandbox is busy with too many calls: end some first")]
    Busy,
    /// As many calls of one kind are open as may be.
    #[error("the agent in the sandbox has {most} open {of}, which is the limit: end some first")]
    TooManyOpen {
        /// The kind of calls, in the plural.
        of: String,
        /// How many may be open.
        most: u32,
    },
    /// The request is not valid.
    #[error("the agent in the sandbox refuses the request: {reason}")]
    Invalid {
        /// The reason.
        reason: String,
    },
    /// Any other failure.
    #[error("the sandbox cannot {operation} '{operand}': {reason}")]
    Other {
        /// The operation, as a verb.
        operation: String,
        /// The operand of the operation, such as a path.
        operand: GuestString,
        /// The error of the sandbox's kernel.
        reason: String,
    },
}
