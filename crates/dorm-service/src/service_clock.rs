//! The clock by which everything on record is told: it runs like the steady clock and does not follow a wall clock that is set.
//!
//! The service clock shows the wall clock less what that was set by in all. A jump of the wall clock is noticed with the first
//! look after it, before the look is answered, so that no decision ever sees one. What is known is noted in the store: within
//! one boot of the host the next daemon finds out exactly how much time has passed, whatever the wall clock was set to
//! meanwhile. After another boot there is only the wall clock to ask, and an implausible one is not believed (0023).
//!
//! ```text
//! steady   ──────────────────────────────────►
//! wall     ───────┐            ┌─────────────►   set ahead by a year for a minute
//!                 └┄┄ +1 year ┄┘
//! service  ──────────────────────────────────►   what records hold
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dorm_lifecycle::Timestamp;
use dorm_store::{ClockNote, ClockPeriod};
use tokio::sync::Notify;

use crate::clock::Clock;

/// A difference between the two clocks that grows by so much at once is no drift: somebody has set the wall clock.
const JUMP_MILLIS: i64 = 2000;
/// A jump after which nothing is deleted because of its age for a while.
const LARGE_JUMP_MILLIS: i64 = 60_000;
/// How long after such a jump, or a start with an implausible clock, nothing is deleted because of its age.
pub(crate) const HOLD: Duration = Duration::from_secs(3600);
/// How long a daemon may have been down, over a boot of the host, for the wall clock to be believed.
const DOWN_MAX: Duration = Duration::from_secs(86_400);
/// How many periods are remembered. Moments from before them are shown as those of the first are.
const PERIODS_MAX: usize = 64;
/// Between two looks that are so far apart a thread was held up, and the clocks are read again.
const LOOK_MAX: Duration = Duration::from_millis(100);

pub(crate) struct ServiceClock {
    host: Arc<dyn Clock>,
    state: Mutex<State>,
    news: Notify,
}

struct State {
    /// How far the wall clock was ahead of the steady one at the last look.
    wall_ahead: i64,
    /// How far it is ahead of the service clock, and was before; never empty.
    periods: Vec<ClockPeriod>,
    held_until: Timestamp,
    /// Something is not noted in the store yet.
    is_unnoted: bool,
}

impl State {
    fn offset(&self) -> i64 {
        self.periods.last().map_or(0, |period| period.ahead_millis)
    }

    fn begin_period(&mut self, period: ClockPeriod) {
        self.periods.push(period);
        let excess = self.periods.len().saturating_sub(PERIODS_MAX);
        self.periods.drain(..excess);
        self.is_unnoted = true;
    }
}

impl ServiceClock {
    /// Goes on from the last note. `newest` is the latest moment on record. Answers what people should know.
    pub(crate) fn begin(
        host: Arc<dyn Clock>,
        note: Option<ClockNote>,
        newest: Option<Timestamp>,
    ) -> (Self, Option<String>) {
        let (wall, steady) = look(&*host);
        let before = note.as_ref().map_or_else(Vec::new, |note| note.periods.clone());
        let held_until = note.as_ref().map(|note| note.held_until).unwrap_or_default();
        let mut state = State { wall_ahead: ahead(wall, steady), periods: before, held_until, is_unnoted: true };
        if state.periods.is_empty() {
            state.periods.push(ClockPeriod { from: Timestamp::default(), ahead_millis: 0 });
        }
        let by_wall = wall.shifted(-state.offset());
        let plausible = match &note {
            Some(note) if is_of_this_boot(&*host, note, steady) => of_this_boot(note, steady, by_wall),
            Some(_) | None => of_another_boot(newest.max(note.map(|note| note.seen)), by_wall),
        };
        let doubt = plausible.err().map(|doubt| {
            state.begin_period(ClockPeriod { from: doubt.now, ahead_millis: difference(wall, doubt.now) });
            state.held_until = doubt.now.after(HOLD);
            doubt.says
        });
        (Self { host, state: Mutex::new(state), news: Notify::new() }, doubt)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads both clocks; a jump since the last look begins a period. Slow drift of the wall clock is followed and is none.
    fn look(&self) -> (Timestamp, Duration, MutexGuard<'_, State>) {
        let mut state = self.state();
        let (wall, steady) = look(&*self.host);
        let wall_ahead = ahead(wall, steady);
        let millis = wall_ahead.saturating_sub(state.wall_ahead);
        state.wall_ahead = wall_ahead;
        if millis.abs() >= JUMP_MILLIS {
            let ahead_millis = state.offset().saturating_add(millis);
            let now = wall.shifted(-ahead_millis);
            state.begin_period(ClockPeriod { from: now, ahead_millis });
            if millis.abs() >= LARGE_JUMP_MILLIS {
                state.held_until = state.held_until.max(now.after(HOLD));
            }
            tracing::warn!(millis, "the wall clock was set; no deadline moves");
            self.news.notify_one();
        }
        (wall.shifted(-state.offset()), steady, state)
    }

    /// What the wall clock showed at a moment on record, or will show.
    pub(crate) fn shown(&self, moment: Timestamp) -> Timestamp {
        let (now, _, state) = self.look();
        if moment >= now {
            return moment.shifted(state.offset());
        }
        let after = state.periods.partition_point(|period| period.from <= moment);
        let period = state.periods.get(after.saturating_sub(1)).or(state.periods.first());
        moment.shifted(period.map_or(0, |period| period.ahead_millis))
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        self.host.now()
    }

    /// Nothing is deleted because of its age before this.
    pub(crate) fn held_until(&self) -> Timestamp {
        self.state().held_until
    }

    /// What is to be noted in the store.
    pub(crate) fn note(&self) -> ClockNote {
        let (seen, steady, mut state) = self.look();
        state.is_unnoted = false;
        let (periods, held_until) = (state.periods.clone(), state.held_until);
        ClockNote { seen, steady, boot: self.host.boot(), periods, held_until }
    }

    /// It could not be noted.
    pub(crate) fn is_to_be_noted_again(&self) {
        self.state().is_unnoted = true;
    }

    pub(crate) fn is_unnoted(&self) -> bool {
        self.look().2.is_unnoted
    }

    /// Waits for a jump.
    pub(crate) async fn jumped(&self) {
        self.news.notified().await;
    }
}

impl Clock for ServiceClock {
    fn now(&self) -> Timestamp {
        self.look().0
    }

    fn steady(&self) -> Duration {
        self.host.steady()
    }

    fn boot(&self) -> Option<String> {
        self.host.boot()
    }
}

/// A start with a wall clock that is not believed.
struct Doubt {
    /// What the service clock shows instead.
    now: Timestamp,
    says: String,
}

fn is_of_this_boot(host: &dyn Clock, note: &ClockNote, steady: Duration) -> bool {
    note.boot.is_some() && note.boot == host.boot() && steady >= note.steady
}

/// Within one boot the steady clock knows how much time has passed.
fn of_this_boot(note: &ClockNote, steady: Duration, by_wall: Timestamp) -> Result<(), Doubt> {
    let passed = steady.saturating_sub(note.steady);
    let now = note.seen.after(passed);
    let millis = difference(by_wall, now);
    // A clock that is disciplined drifts by less than a thousandth.
    let drift = i64::try_from(passed.as_millis() / 1000).unwrap_or(i64::MAX).saturating_add(JUMP_MILLIS);
    if millis.abs() <= drift {
        return Ok(());
    }
    let says = format!("the wall clock was set by {} s while no daemon looked; no deadline moves", millis / 1000);
    Err(Doubt { now, says })
}

fn of_another_boot(newest: Option<Timestamp>, by_wall: Timestamp) -> Result<(), Doubt> {
    let Some(newest) = newest else { return Ok(()) };
    let back = newest.since(by_wall);
    let down = by_wall.since(newest);
    let why = if back > Duration::from_millis(JUMP_MILLIS.unsigned_abs()) {
        format!("is {} s earlier than the newest record", back.as_secs())
    } else if down > DOWN_MAX {
        format!("is {} h later than the newest record", down.as_secs() / 3600)
    } else {
        return Ok(());
    };
    let says = format!(
        "the host was booted, and its wall clock {why}: the time in between does not count for any deadline, and nothing is \
         deleted because of its age for an hour"
    );
    Err(Doubt { now: newest, says })
}

/// Both clocks at one moment.
fn look(host: &dyn Clock) -> (Timestamp, Duration) {
    let mut steady = host.steady();
    for _ in 0..3 {
        let wall = host.now();
        let after = host.steady();
        if after.saturating_sub(steady) < LOOK_MAX {
            return (wall, after);
        }
        steady = after;
    }
    (host.now(), host.steady())
}

fn ahead(wall: Timestamp, steady: Duration) -> i64 {
    signed(u128::from(wall.as_millis())).saturating_sub(signed(steady.as_millis()))
}

fn difference(later: Timestamp, earlier: Timestamp) -> i64 {
    signed(u128::from(later.as_millis())).saturating_sub(signed(u128::from(earlier.as_millis())))
}

fn signed(millis: u128) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
