//! What can go wrong with a worker. All of it is an error of the one operation that asked for it.

use std::io;

use thiserror::Error;

/// Why a worker did not do its work.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// It could not be started.
    #[error("cannot start the worker '{role}': check that the program file of the daemon is still executable")]
    Spawn {
        /// What it was to do.
        role: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended before it was done.
    #[error("the worker '{role}' ended early: {how}{}", quoted(said))]
    Ended {
        /// What it was to do.
        role: String,
        /// With which status or by which signal.
        how: String,
        /// The beginning of its standard error.
        said: String,
    },
    /// It neither wrote anything nor ended.
    #[error("the worker '{role}' wrote nothing for {seconds} seconds and was killed")]
    Silent {
        /// What it was to do.
        role: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It wrote something that no worker writes.
    #[error("the worker '{role}' sent an invalid message: {what}")]
    Message {
        /// What it was to do.
        role: String,
        /// What is wrong with it.
        what: String,
    },
    /// The pipe to or from it broke.
    #[error("cannot {operation} the worker '{role}'")]
    Pipe {
        /// `read from` or `write to`.
        operation: &'static str,
        /// What it was to do.
        role: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" (\"{said}\")") }
}
