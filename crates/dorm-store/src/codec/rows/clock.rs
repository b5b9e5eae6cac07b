//! The row of the clocks, to the domain's type and back.

use serde::{Deserialize, Serialize};

use crate::codec::word::{Length, Millis, present};
use crate::{ClockNote, ClockPeriod, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct ClockRow {
    v: u64,
    seen: Millis,
    steady: Length,
    #[serde(deserialize_with = "present")]
    boot: Option<String>,
    periods: Vec<PeriodRow>,
    held_until: Millis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeriodRow {
    from: Millis,
    ahead_millis: i64,
}

impl From<&ClockNote> for ClockRow {
    fn from(note: &ClockNote) -> Self {
        let ClockNote { seen, steady, boot, periods, held_until } = note;
        let period = |period: &ClockPeriod| PeriodRow { from: Millis(period.from), ahead_millis: period.ahead_millis };
        Self {
            v: codec::CLOCK,
            seen: Millis(*seen),
            steady: Length(*steady),
            boot: boot.clone(),
            periods: periods.iter().map(period).collect(),
            held_until: Millis(*held_until),
        }
    }
}

impl From<ClockRow> for ClockNote {
    fn from(row: ClockRow) -> Self {
        let period = |period: PeriodRow| ClockPeriod { from: period.from.0, ahead_millis: period.ahead_millis };
        Self {
            seen: row.seen.0,
            steady: row.steady.0,
            boot: row.boot,
            periods: row.periods.into_iter().map(period).collect(),
            held_until: row.held_until.0,
        }
    }
}
