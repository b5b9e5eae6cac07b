//! Who is told what when an operation is over.

use std::sync::Arc;

use dorm_lifecycle::{Observation, State, StateName};

use super::{Actor, Waiting};
use crate::error::ServiceError;

impl Actor {
    /// Answers everybody who waited for the operation that `observation` has ended.
    pub(super) fn answer(&mut self, observation: &Observation, mut cause: Option<Arc<ServiceError>>) {
        let reason = self.failure.take().or_else(|| failure(observation));
        for waiting in std::mem::take(&mut self.waiting) {
            // The first who waits has asked for it, and is told the error itself.
            let cause = cause.take().and_then(Arc::into_inner);
            match waiting {
                Waiting::View(operation, reply) => {
                    let answer = match (&reason, cause) {
                        (None, _) => Ok(self.view()),
                        (Some(_), Some(cause)) => Err(cause),
                        (Some(reason), None) => Err(self.failed(operation, reason)),
                    };
                    let _ = reply.send(answer);
                }
                Waiting::Snapshot(reply) => {
                    let answer = match (&reason, self.snapshot.take(), cause) {
                        (None, Some(snapshot), _) => Ok(snapshot),
                        (Some(_), _, Some(cause)) => Err(cause),
                        (Some(reason), _, None) => Err(self.failed("take a snapshot of", reason)),
                        (None, None, _) => Err(self.failed("take a snapshot of", "its record is gone")),
                    };
                    let _ = reply.send(answer);
                }
            }
        }
    }

    pub(super) fn failed(&self, operation: &'static str, reason: &str) -> ServiceError {
        let state: StateName = match &self.record.sandbox.state {
            State::Terminated { .. } => StateName::Terminated,
            other => other.name(),
        };
        ServiceError::OperationFailed {
            operation,
            sandbox: self.record.sandbox.id.clone(),
            reason: reason.to_owned(),
            state,
        }
    }
}

pub(super) fn failure(observation: &Observation) -> Option<String> {
    match observation {
        Observation::Started
        | Observation::Saved(_)
        | Observation::SnapshotTaken
        | Observation::Attached
        | Observation::RewindPrepared
        | Observation::Woken { .. }
        | Observation::Unreachable(_)
        | Observation::Reachable
        | Observation::Stopped => None,
        Observation::StartFailed(reason)
        | Observation::SaveFailed(reason)
        | Observation::SnapshotFailed(reason)
        | Observation::WakeFailed(reason)
        | Observation::AttachFailed(reason)
        | Observation::RewindNotPrepared(reason)
        | Observation::RunLost(reason) => Some(reason.clone()),
    }
}
