//! Streams of server-sent events. The name of an event says which of these types its data has.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::checkpoints::CheckpointTaken;
use crate::problem::Problem;
use crate::process::{ExitStatus, LostOutput, OutputChunk, ProcessStarted};

/// Data of an event in the stream of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CommandEvent {
    /// `checkpoint`.
    Checkpoint(CheckpointTaken),
    /// `started`.
    Started(ProcessStarted),
    /// `stdout` and `stderr`.
    Output(OutputChunk),
    /// `lost`.
    Lost(LostOutput),
    /// `exit`, the last event.
    Exit(ExitStatus),
    /// `error`, the last event.
    Error(Problem),
}

/// Data of an event in the stream of a process's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OutputEvent {
    /// `stdout` and `stderr`.
    Output(OutputChunk),
    /// `lost`.
    Lost(LostOutput),
    /// `exit`, the last event.
    Exit(ExitStatus),
    /// `error`, the last event.
    Error(Problem),
}
