//! What can go wrong with an engine.

use std::error::Error as StdError;
use std::path::PathBuf;

use dorm_lifecycle::RunId;
use thiserror::Error;

type Source = Box<dyn StdError + Send + Sync>;

/// Why an engine could not do what it was asked to.
#[derive(Debug, Error)]
pub enum EngineError {
    /// There is no such run on this host.
    #[error("there is no run {0} on this host")]
    NoRun(RunId),
    /// A run of that id exists already.
    #[error("run {0} exists already")]
    Exists(RunId),
    /// The run has ended: its process is gone, or it was never begun to its end.
    #[error("cannot {operation} run {run}: it has ended")]
    Ended {
        /// The call.
        operation: &'static str,
        /// Which run.
        run: RunId,
    },
    /// The call does not fit what the run does now.
    #[error("cannot {operation} run {run}: it is {condition}")]
    Condition {
        /// The call.
        operation: &'static str,
        /// Which run.
        run: RunId,
        /// What it does now.
        condition: &'static str,
    },
    /// Nobody listens on that port inside.
    #[error("nobody listens on port {port} in run {run}")]
    Refused {
        /// Which run.
        run: RunId,
        /// Which port.
        port: u16,
    },
    /// The host has no room for it: disk, memory, addresses.
    #[error("cannot {operation} run {run}: no room on this host")]
    NoRoom {
        /// The call.
        operation: &'static str,
        /// Which run.
        run: RunId,
        /// What the host said.
        #[source]
        source: Source,
    },
    /// The files in a memory image could not be read, or not be kept.
    #[error("cannot read the files out of the memory image in {image}")]
    Files {
        /// Its directory.
        image: PathBuf,
        /// What is wrong.
        #[source]
        source: Source,
    },
    /// Anything else that failed.
    #[error("cannot {operation} run {run}")]
    Failed {
        /// The call.
        operation: &'static str,
        /// Which run.
        run: RunId,
        /// Why.
        #[source]
        source: Source,
    },
    /// The engine itself does not work on this host.
    #[error("the {engine} engine does not work on this host: {hint}")]
    Unusable {
        /// Which engine.
        engine: &'static str,
        /// What to do.
        hint: String,
        /// Why.
        #[source]
        source: Option<Source>,
    },
}

impl EngineError {
    /// A failure of `operation` on `run` for the reason `source`.
    pub fn failed(operation: &'static str, run: &RunId, source: impl Into<Source>) -> Self {
        Self::Failed { operation, run: run.clone(), source: source.into() }
    }

    /// Whether it says that there is nothing left of the run that could go on. Any other error leaves that open.
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

    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(next) = cause {
            text.push_str(": ");
            text.push_str(&next.to_string());
            cause = next.source();
        }
        text
    }
}
