//! The service clock, by which everything on record is timed: it runs like the steady clock and
//! does not follow adjustments of the wall clock.
//!
//! The service clock shows the wall clock minus the sum of its adjustments. A jump of the wall
//! clock is detected at the first read after it, before that read returns, so no decision ever sees
//! one. The state is stored: within one boot of the host, the next daemon determines exactly how
//! much time has passed, however the wall clock was adjusted meanwhile. After a reboot there is
//! only the wall clock, and an implausible one is not trusted (decision 0023).
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
use dorm_ports::Clock;
use dorm_store::{ClockNote, ClockPeriod};
use tokio::sync::Notify;

/// If the difference between the two clocks grows by this much at once, it is not drift: the wall
/// clock was adjusted.
const JUMP_MILLIS: i64 = 2000;
/// After a jump of this size, nothing is deleted because of its age for some time.
const LARGE_JUMP_MILLIS: i64 = 60_000;
/// How long after such a jump, or after a start with an implausible clock, nothing is deleted
/// because of its age.
pub(crate) const HOLD: Duration = Duration::from_secs(3600);
/// How long a daemon may have been down, across a reboot of the host, for the wall clock to be
/// trusted.
const DOWN_MAX: Duration = Duration::from_secs(86_400);
/// How many periods are remembered. Times before them are shown like those of the first period.
const PERIODS_MAX: usize = 64;
/// If two reads are this far apart, the thread was delayed, and the clocks are read again.
const LOOK_MAX: Duration = Duration::from_millis(100);

pub(crate) struct ServiceClock {
    host: Arc<dyn Clock>,
    state: Mutex<State>,
    news: Notify,
}

struct State {
    /// How far the wall clock was ahead of the steady clock at the last read.
    wall_ahead: i64,
    /// How far the wall clock is ahead of the service clock, now and in earlier periods; never
    /// empty.
    periods: Vec<ClockPeriod>,
    held_until: Timestamp,
    /// Whether something is not stored yet.
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
    /// Continues from the stored state `note`. `newest` is the latest time on record. Also returns
    /// a warning for people, if there is one.
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

    /// Reads both clocks; a jump since the last read begins a new period. Slow drift of the wall
    /// clock is followed and does not count as a jump.
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

    /// Returns what the wall clock showed, or will show, at a recorded time.
    pub(crate) fn shown(&self, moment: Timestamp) -> Timestamp {
        let (now, _, state) = self.look();
        if moment >= now {
            return moment.shifted(state.offset());
        }
        let after = state.periods.partition_point(|period| period.from <= moment);
        let period = state.periods.get(after.saturating_sub(1)).or(state.periods.first());
        moment.shifted(period.map_or(0, |period| period.ahead_millis))
    }

    /// Returns the wall-clock time.
    pub(crate) fn wall(&self) -> Timestamp {
        self.host.now()
    }

    /// Returns the time before which nothing is deleted because of its age.
    pub(crate) fn held_until(&self) -> Timestamp {
        self.state().held_until
    }

    /// Returns the state to store.
    pub(crate) fn note(&self) -> ClockNote {
        let (seen, steady, mut state) = self.look();
        state.is_unnoted = false;
        let (periods, held_until) = (state.periods.clone(), state.held_until);
        ClockNote { seen, steady, boot: self.host.boot(), periods, held_until }
    }

    /// Reports that the state could not be stored.
    pub(crate) fn note_again(&self) {
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

/// The reason not to trust the wall clock at startup.
struct Doubt {
    /// The time that the service clock shows instead.
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
    // A disciplined clock drifts by less than a thousandth.
    let drift = i64::try_from(passed.as_millis() / 1000).unwrap_or(i64::MAX).saturating_add(JUMP_MILLIS);
    if millis.abs() <= drift {
        return Ok(());
    }
    let says = format!("the wall clock was set by {} s while no daemon was running; no deadline moves", millis / 1000);
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
        "the host was booted, and its wall clock {why}: the time in between does not count towards any deadline, and nothing is \
         deleted because of its age for an hour"
    );
    Err(Doubt { now: newest, says })
}

/// Reads both clocks at the same moment.
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
