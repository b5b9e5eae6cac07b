//! Explanations.

use dorm_api_types as wire;
use dorm_lifecycle as life;

use super::{Convert, Of, time};

pub(crate) fn why(sandbox: &life::SandboxId, why: life::Why) -> wire::Why {
    let life::Why { summary, because, refused, next, on_disk } = why;
    let all = |reasons: Vec<life::Reason>| reasons.into_iter().map(Convert::convert).collect();
    wire::Why {
        sandbox: sandbox.to_string(),
        summary,
        because: all(because),
        refused: refused.map(Convert::convert),
        next: all(next),
        on_disk: all(on_disk),
    }
}

impl Of<life::Reason> for wire::Reason {
    fn of(reason: life::Reason) -> Self {
        Self { signal: reason.signal.to_owned(), says: reason.says, at: reason.at.map(time) }
    }
}
