//! Automatic checkpoints.

use dorm_api_types as wire;
use dorm_lifecycle as life;

use super::{Convert, Of};
use crate::error::ApiError;
use crate::extract::seconds;

/// The policy that a request asks for. Fields that it leaves out are taken from `now`.
pub(crate) fn checkpoints(
    asked: wire::CheckpointsRequest,
    now: Option<life::Checkpoints>,
) -> Result<life::Checkpoints, ApiError> {
    let wire::CheckpointsRequest { every_secs, kind, keep } = asked;
    let every = every_secs.map(|value| seconds("every_secs of checkpoints", value)).transpose()?;
    let Some(every) = every.or(now.as_ref().map(|now| now.every)) else {
        let message = "every_secs of checkpoints is missing, and the sandbox has no policy yet";
        return Err(ApiError::invalid(message, "give the number of seconds between two checkpoints"));
    };
    let keep = keep.map(|text| text.parse()).transpose();
    let keep = keep.map_err(|error: life::RetentionPolicyError| {
        ApiError::invalid(format!("keep of checkpoints: {error}"), "write it like 3,24x1h,7x1d")
    })?;
    let (kind_now, keep_now) = now.map_or_else(Default::default, |now| (now.kind, now.keep));
    Ok(life::Checkpoints { every, kind: kind.map_or(kind_now, Convert::convert), keep: keep.unwrap_or(keep_now) })
}

impl Of<life::Checkpoints> for wire::Checkpoints {
    fn of(checkpoints: life::Checkpoints) -> Self {
        let life::Checkpoints { every, kind, keep } = checkpoints;
        Self { every_secs: every.as_secs_f64(), kind: kind.convert(), keep: keep.to_string() }
    }
}
