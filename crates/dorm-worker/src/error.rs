//! Errors of workers. Each is an error of the one operation that used the worker.

use std::io;

use thiserror::Error;

/// Why a worker failed.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// It could not be started.
    #[error("cannot start the worker '{role}': check that the program file of the daemon is still executable")]
    Spawn {
        /// The role of the worker.
        role: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// It ended early.
    #[error("the worker '{role}' ended early: {how}{}", quoted(said))]
    Ended {
        /// The role of the worker.
        role: String,
        /// Its exit status or signal.
        how: String,
        /// The beginning of its standard error.
        said: String,
    },
    /// It neither wrote anything nor exited.
    #[error("the worker '{role}' wrote nothing for {seconds} seconds and was killed")]
    Silent {
        /// The role of the worker.
        role: String,
        /// How long the caller waited.
        seconds: u64,
    },
    /// It sent an invalid message.
    #[error("the worker '{role}' sent an invalid message: {what}")]
    Message {
        /// The role of the worker.
        role: String,
        /// The problem with the message.
        what: String,
    },
    /// The pipe to or from it broke.
    #[error("cannot {operation} the worker '{role}'")]
    Pipe {
        /// `read from` or `write to`.
        operation: &'static str,
        /// The role of the worker.
        role: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" (\"{said}\")") }
}
