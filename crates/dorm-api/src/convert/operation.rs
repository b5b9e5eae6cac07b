//! Operations.

use dorm_api_types as wire;
use dorm_store::{OperationRecord, OperationResult};

use super::{Convert, Of, time};

impl Of<OperationRecord> for wire::Operation {
    fn of(operation: OperationRecord) -> Self {
        let (status, failure) = match &operation.ended {
            None => (wire::OperationStatus::InProgress, None),
            Some((_, OperationResult::Done)) => (wire::OperationStatus::Completed, None),
            Some((_, OperationResult::Failed(failure))) => (wire::OperationStatus::Failed, Some(failure)),
        };
        Self {
            id: operation.id.to_string(),
            kind: operation.kind.as_str().to_owned(),
            sandbox: operation.sandbox.as_ref().map(ToString::to_string),
            initiator: operation.initiator.as_str().to_owned(),
            caller: operation.caller.clone().map(Convert::convert),
            status,
            started_at: time(operation.began),
            deadline: time(operation.deadline),
            ended_at: operation.ended.as_ref().map(|(at, _)| time(*at)),
            code: failure.map(|failure| failure.code.as_str().to_owned()),
            reason: failure.map(|failure| failure.reason.clone()),
        }
    }
}
