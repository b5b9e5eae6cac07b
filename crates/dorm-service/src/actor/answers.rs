//! Replies to callers when an operation ends.

use dorm_lifecycle::{Observation, State, StateName};
use dorm_store::Code;

use super::{Actor, Waiting};
use crate::error::{Failure, ServiceError};
use crate::view::Changed;

impl Actor {
    /// Replies to all callers that waited for the operation that has ended, with the failure if
    /// there is one.
    pub(super) fn answer(&mut self, failure: Option<Failure>) {
        let failure = self.failure.take().or(failure);
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Command(operation, reply) => {
                    let answer = match &failure {
                        None => Ok(self.answered(Changed::Yes)),
                        Some(failure) => Err(self.failed(operation, failure.clone())),
                    };
                    let _ = reply.send(answer);
                }
                Waiting::View(operation, reply) => {
                    let answer = match &failure {
                        None => Ok(self.view()),
                        Some(failure) => Err(self.failed(operation, failure.clone())),
                    };
                    let _ = reply.send(answer);
                }
                Waiting::Settled(reply) => _ = reply.send(Ok(())),
                Waiting::Snapshot(reply) => {
                    let answer = match (&failure, self.snapshot.take()) {
                        (None, Some(snapshot)) => Ok(snapshot),
                        (Some(failure), _) => Err(self.failed("take a snapshot of", failure.clone())),
                        (None, None) => {
                            let gone = Failure::new(Code::Internal, "its record is missing");
                            Err(self.failed("take a snapshot of", gone))
                        }
                    };
                    let _ = reply.send(answer);
                }
            }
        }
    }

    pub(super) fn failed(&self, operation: &'static str, failure: Failure) -> ServiceError {
        let state: StateName = match &self.record.sandbox.state {
            State::Terminated { .. } => StateName::Terminated,
            other => other.name(),
        };
        ServiceError::OperationFailed { operation, sandbox: self.record.sandbox.id.clone(), failure, state }
    }
}

/// Returns why an operation that ends with `observation` failed, if it did; `known` is the failure
/// with its cause, where that is known.
pub(super) fn failure(observation: &Observation, known: Option<Failure>) -> Option<Failure> {
    match observation {
        Observation::Started
        | Observation::Saved(_)
        | Observation::SnapshotTaken
        | Observation::Attached
        | Observation::EgressSet
        | Observation::Resized
        | Observation::RewindPrepared
        | Observation::HeldSaved(_)
        | Observation::Woken { .. }
        | Observation::Unreachable(_)
        | Observation::Reachable
        | Observation::Stopped => None,
        Observation::StartFailed(reason)
        | Observation::SaveFailed(reason)
        | Observation::SnapshotFailed(reason)
        | Observation::WakeFailed(reason)
        | Observation::AttachFailed(reason)
        | Observation::EgressFailed(reason)
        | Observation::ResizeFailed(reason)
        | Observation::RewindNotPrepared(reason)
        | Observation::HeldNotSaved(reason)
        | Observation::HeldLost(reason)
        | Observation::RunLost(reason) => Some(known.unwrap_or_else(|| Failure::new(Code::Failed, reason))),
    }
}
