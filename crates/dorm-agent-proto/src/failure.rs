//! Why the agent could not do what it was asked to.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::guest::{GuestPath, GuestString};

/// A refusal or failure, with its operand.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Nothing is there.
    #[error("there is no '{path}' in the sandbox")]
    NotFound {
        /// Where.
        path: GuestPath,
    },
    /// The sandbox's own permissions forbid it.
    #[error("'{path}' in the sandbox may not be accessed so")]
    Denied {
        /// What.
        path: GuestPath,
    },
    /// Something is there already.
    #[error("'{path}' exists in the sandbox already")]
    Exists {
        /// Where.
        path: GuestPath,
    },
    /// A directory was needed.
    #[error("'{path}' in the sandbox is not a directory")]
    NotADirectory {
        /// What.
        path: GuestPath,
    },
    /// A file was needed.
    #[error("'{path}' in the sandbox is a directory")]
    IsADirectory {
        /// What.
        path: GuestPath,
    },
    /// The directory has entries.
    #[error("the directory '{path}' in the sandbox is not empty: remove it with all below it")]
    NotEmpty {
        /// Which.
        path: GuestPath,
    },
    /// A device, socket or pipe cannot be read or written as a file.
    #[error("'{path}' in the sandbox is not a regular file")]
    NotAFile {
        /// What.
        path: GuestPath,
    },
    /// The sandbox's disk is full.
    #[error("no room for '{path}' on the sandbox's disk")]
    NoSpace {
        /// What was written.
        path: GuestPath,
    },
    /// A program works on a volume that is to go.
    #[error("a program in the sandbox uses '{path}': end it, or have it close its files and leave the directory")]
    MountBusy {
        /// Where the volume is.
        path: GuestPath,
    },
    /// No such command in the process's `PATH`.
    #[error("command not found in the sandbox: '{command}'")]
    CommandNotFound {
        /// Which.
        command: GuestString,
    },
    /// The command is there but cannot be run.
    #[error("the sandbox cannot run '{command}': {reason}")]
    CannotExecute {
        /// Which.
        command: GuestString,
        /// What the sandbox's kernel said.
        reason: String,
    },
    /// The sandbox's user list has no such user.
    #[error("there is no user '{user}' in the sandbox")]
    NoUser {
        /// Who.
        user: String,
    },
    /// Never existed, has ended, or was forgotten.
    #[error("there is no process {process} in the sandbox, or it has ended")]
    NoProcess {
        /// Its handle.
        process: u64,
    },
    /// It was started without input, or its input is closed.
    #[error("the input of process {process} is closed")]
    InputClosed {
        /// Its handle.
        process: u64,
    },
    /// It was started without one.
    #[error("process {process} has no terminal")]
    NoTerminal {
        /// Its handle.
        process: u64,
    },
    /// Nobody listens there.
    #[error("nobody listens on port {port} in the sandbox")]
    Refused {
        /// Where.
        port: u16,
    },
    /// Too many calls at once.
    #[error("the agent in the sandbox is busy with too many calls: end some first")]
    Busy,
    /// The request makes no sense.
    #[error("the agent in the sandbox refuses the request: {reason}")]
    Invalid {
        /// Why.
        reason: String,
    },
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
