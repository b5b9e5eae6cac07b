//! Slow reading: a background check uses only a given share of the disk, and lets all other reads
//! go first.
//!
//! A pace is set for a thread while work is done at it, so that the functions which hash files need
//! no argument for it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest single sleep, so that a stop is noticed soon.
const NAP: Duration = Duration::from_millis(100);

/// How fast something is read, and whether reading was stopped. Clones are one pace.
#[derive(Clone, Debug)]
pub struct Pace {
    bytes_per_second: u64,
    stopped: Arc<AtomicBool>,
}

impl Pace {
    /// Creates a pace of this many bytes a second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), stopped: Arc::default() }
    }

    /// Makes all reads at this pace fail.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

struct Reading {
    pace: Pace,
    began: Instant,
    bytes: u64,
}

thread_local! {
    static READING: RefCell<Option<Reading>> = const { RefCell::new(None) };
}

/// Runs `work` at this pace, on this thread alone, whose priority is lowered permanently.
pub(crate) fn at<T>(pace: &Pace, work: impl FnOnce() -> T) -> T {
    dorm_disk::give_way();
    let reading = Reading { pace: pace.clone(), began: Instant::now(), bytes: 0 };
    READING.with(|here| here.replace(Some(reading)));
    let done = work();
    READING.with(|here| here.replace(None));
    done
}

/// Whether this thread reads at a pace.
pub(crate) fn is_set() -> bool {
    READING.with(|here| here.borrow().is_some())
}

/// Counts another `bytes` bytes and waits until the pace permits them. Fails if the pace was
/// stopped.
pub(crate) fn read(bytes: usize) -> io::Result<()> {
    READING.with(|here| {
        let mut here = here.borrow_mut();
        let Some(reading) = here.as_mut() else { return Ok(()) };
        reading.bytes = reading.bytes.saturating_add(bytes as u64);
        loop {
            if reading.pace.is_stopped() {
                return Err(io::Error::other("it was stopped"));
            }
            #[allow(clippy::cast_precision_loss, reason = "a pace need not be exact")]
            let due = Duration::from_secs_f64(reading.bytes as f64 / reading.pace.bytes_per_second as f64);
            match due.checked_sub(reading.began.elapsed()) {
                None | Some(Duration::ZERO) => return Ok(()),
                Some(left) => thread::sleep(left.min(NAP)),
            }
        }
    })
}
