//! Explanations.

use dorm_lifecycle as life;

use super::time;
use crate::wire;

pub(crate) fn why(sandbox: &life::SandboxId, why: life::Why) -> wire::Why {
    let life::Why { summary, because, refused, next, on_disk } = why;
    let all = |reasons: Vec<life::Reason>| reasons.into_iter().map(Into::into).collect();
    wire::Why {
        sandbox: sandbox.to_string(),
        summary,
        because: all(because),
        refused: refused.map(Into::into),
        next: all(next),
        on_disk: all(on_disk),
    }
}

impl From<life::Reason> for wire::Reason {
    fn from(reason: life::Reason) -> Self {
        Self { signal: reason.signal.to_owned(), says: reason.says, at: reason.at.map(time) }
    }
}
