//! Errors of engines.

use std::error::Error as StdError;
use std::path::PathBuf;

use dorm_lifecycle::RunId;
use thiserror::Error;

type Source = Box<dyn StdError + Send + Sync>;

/// Returns an error and its causes in one line.
pub fn chain(error: &dyn StdError) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Why an engine could not carry out a call.
#[derive(Debug, Error)]
pub enum EngineError {
    /// There is no such run on this host.
    #[error("there is no run {0} on this host")]
    NoRun(RunId),
    /// A run of that id exists already.
    #[error("run {0} exists already")]
    Exists(RunId),
    /// The run has ended: its process is gone, or it was never started completely.
    #[error("cannot {operation} run {run}: it has ended")]
    Ended {
        /// The call.
        operation: &'static str,
        /// The run.
        run: RunId,
    },
    /// The run is in a condition that does not permit the call.
    #[error("cannot {operation} run {run}: it is {condition}")]
    Condition {
        /// The call.
        operation: &'static str,
        /// The run.
        run: RunId,
        /// Its condition.
        condition: &'static str,
    },
    /// No process listens on the port inside.
    #[error("no process in sandbox {} listens on port {port}", run.sandbox)]
    Refused {
        /// The run.
        run: RunId,
        /// The port.
        port: u16,
    },
    /// The host has too little room: disk, memory, addresses.
    #[error("cannot {operation} run {run}: no room on this host")]
    NoRoom {
        /// The call.
        operation: &'static str,
        /// The run.
        run: RunId,
        /// The error of the host.
        #[source]
        source: Source,
    },
    /// The files in a memory image could not be read, or could not be stored.
    #[error("cannot read the files out of the memory image in {image}")]
    Files {
        /// The directory of the memory image.
        image: PathBuf,
        /// The cause.
        #[source]
        source: Source,
    },
    /// Any other failure.
    #[error("cannot {operation} run {run}")]
    Failed {
        /// The call.
        operation: &'static str,
        /// The run.
        run: RunId,
        /// The cause.
        #[source]
        source: Source,
    },
    /// The engine cannot be used on this host.
    #[error("the {engine} engine cannot be used on this host: {hint}")]
    Unusable {
        /// The name of the engine.
        engine: &'static str,
        /// A hint how to fix it.
        hint: String,
        /// The cause.
        #[source]
        source: Option<Source>,
    },
}

impl EngineError {
    /// Returns the error for a failure of `operation` on `run` because of `source`.
    pub fn failed(operation: &'static str, run: &RunId, source: impl Into<Source>) -> Self {
        Self::Failed { operation, run: run.clone(), source: source.into() }
    }

    /// Returns whether the error means that nothing of the run is left that could continue. Any
    /// other error leaves that open.
    pub fn says_that_the_run_is_over(&self) -> bool {
        match self {
            Self::NoRun(_) | Self::Ended { .. } => true,
            Self::Exists(_)
            | Self::Condition { .. }
            | Self::Refused { .. }
            | Self::NoRoom { .. }
            | Self::Files { .. }
            | Self::Failed { .. }
            | Self::Unusable { .. } => false,
        }
    }

    /// Returns the error and its causes in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}
