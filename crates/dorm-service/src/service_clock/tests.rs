use dorm_ports::TokioClock;

use super::*;

const YEAR: i64 = 365 * 86_400_000;
const HOUR: i64 = 3_600_000;
const BASE: i64 = 50 * YEAR;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.unsigned_abs())
}

fn host() -> TokioClock {
    TokioClock::starting_at(at(BASE))
}

fn begin(host: &TokioClock, note: Option<ClockNote>, newest: Option<Timestamp>) -> (ServiceClock, Option<String>) {
    ServiceClock::begin(Arc::new(host.clone()), note, newest)
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_is_not_followed_and_one_that_drifts_is() {
    let host = host();
    let (clock, doubt) = begin(&host, None, None);
    assert_eq!(doubt, None);
    tokio::time::advance(Duration::from_secs(100_000)).await;
    assert_eq!(clock.now(), at(BASE + 100_000_000));
    host.set_by(1999);
    assert_eq!(clock.now(), at(BASE + 100_001_999));
    host.set_by(YEAR);
    assert_eq!(clock.now(), at(BASE + 100_001_999));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(clock.now(), at(BASE + 100_061_999));
    host.set_by(-YEAR - HOUR);
    assert_eq!((clock.now(), clock.wall()), (at(BASE + 100_061_999), at(BASE + 100_061_999 - HOUR)));
}

#[tokio::test(start_paused = true)]
async fn a_moment_is_shown_as_the_wall_clock_showed_it_or_will() {
    let host = host();
    let (clock, _) = begin(&host, None, None);
    tokio::time::advance(Duration::from_secs(10)).await;
    let before = clock.now();
    host.set_by(HOUR);
    tokio::time::advance(Duration::from_secs(10)).await;
    let during = clock.now();
    assert_eq!(clock.shown(before), before);
    assert_eq!(clock.shown(during), clock.wall());
    assert_eq!(clock.shown(during.after(Duration::from_secs(5))), clock.wall().after(Duration::from_secs(5)));
    tokio::time::advance(Duration::from_secs(10)).await;
    host.set_by(-HOUR);
    assert_eq!(clock.shown(before), before);
    assert_eq!(clock.shown(during), during.shifted(HOUR));
    assert_eq!(clock.shown(clock.now()), clock.wall());
}

#[tokio::test(start_paused = true)]
async fn what_was_set_while_no_daemon_looked_is_known_within_a_boot() {
    for millis in [YEAR, -500_000] {
        let host = host();
        let (clock, _) = begin(&host, None, None);
        let note = clock.note();
        // The clock jumps, and the daemon ends before that is stored.
        host.set_by(millis);
        tokio::time::advance(Duration::from_secs(40)).await;
        let (clock, doubt) = begin(&host, Some(note.clone()), None);
        assert_eq!(clock.now(), note.seen.after(Duration::from_secs(40)), "{doubt:?}");
        assert!(doubt.is_some() && clock.held_until() > clock.now());
        assert_eq!(clock.shown(clock.now()), clock.wall());
        assert_eq!(clock.shown(note.seen), note.seen);
        // The next daemon has nothing to detect, however much time has passed.
        let note = clock.note();
        tokio::time::advance(Duration::from_secs(90 * 86_400)).await;
        let (next, doubt) = begin(&host, Some(note.clone()), None);
        assert_eq!((next.now(), doubt), (note.seen.after(Duration::from_secs(90 * 86_400)), None));
    }
}

#[tokio::test(start_paused = true)]
async fn after_another_boot_a_plausible_wall_clock_is_believed() {
    let host = host();
    let (clock, _) = begin(&host, None, None);
    host.set_by(HOUR);
    let note = clock.note();
    tokio::time::advance(Duration::from_secs(20 * 3600)).await;
    host.reboot();
    let (next, doubt) = begin(&host, Some(note.clone()), None);
    assert_eq!((next.now(), doubt), (note.seen.after(Duration::from_secs(20 * 3600)), None));
}

#[tokio::test(start_paused = true)]
async fn after_another_boot_an_implausible_wall_clock_is_not_believed() {
    for (millis, newest) in [(YEAR, 0), (2 * 86_400_000, 0), (-900_000, 0), (100_000, 700_000)] {
        let host = host();
        let (clock, _) = begin(&host, None, None);
        let note = clock.note();
        host.reboot();
        host.set_by(millis);
        let newest = note.seen.shifted(newest);
        let (clock, doubt) = begin(&host, Some(note), Some(newest));
        assert_eq!(clock.now(), newest, "{millis}");
        assert!(doubt.is_some() && clock.held_until() > clock.now(), "{millis}");
        // The clock is corrected, which is a jump like any other.
        host.set_by(-millis);
        assert_eq!(clock.now(), newest, "{millis}");
        assert_eq!(clock.shown(clock.now()), clock.wall());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_jump_holds_deletions_back_for_an_hour_and_a_small_one_does_not() {
    let host = host();
    let (clock, _) = begin(&host, None, None);
    host.set_by(5000);
    assert!(clock.now() >= clock.held_until());
    host.set_by(-YEAR);
    let now = clock.now();
    assert_eq!(clock.held_until(), now.after(HOLD));
    tokio::time::advance(HOLD).await;
    assert!(clock.now() >= clock.held_until());
}

#[tokio::test(start_paused = true)]
async fn only_so_many_periods_are_remembered() {
    let host = host();
    let (clock, _) = begin(&host, None, None);
    for _ in 0..100 {
        host.set_by(HOUR);
        tokio::time::advance(Duration::from_secs(1)).await;
        clock.now();
    }
    assert_eq!(clock.note().periods.len(), PERIODS_MAX);
    assert_eq!(clock.shown(clock.now()), clock.wall());
}
