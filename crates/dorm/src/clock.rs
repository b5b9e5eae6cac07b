//! The daemon's clock. For `dorm prove`, which must not set the clock of a host, it can be shifted
//! by the number of seconds in a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::Timestamp;
use dorm_ports::{Clock, SystemClock};

/// Returns the clock of the daemon.
pub(crate) fn clock(shift: Option<&PathBuf>) -> Arc<dyn Clock> {
    match shift {
        None => Arc::new(SystemClock),
        Some(file) => Arc::new(ShiftedClock { file: file.clone() }),
    }
}

struct ShiftedClock {
    file: PathBuf,
}

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let seconds: i64 = text.trim().parse().unwrap_or_default();
        SystemClock.now().shifted(seconds.saturating_mul(1000))
    }

    fn steady(&self) -> Duration {
        SystemClock.steady()
    }

    fn boot(&self) -> Option<String> {
        SystemClock.boot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_clock_follows_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("clock");
        let clock = clock(Some(&file));
        let day = Duration::from_secs(86_400);
        assert!(clock.now().since(SystemClock.now()) < day);
        std::fs::write(&file, "864000\n").unwrap();
        assert!(clock.now().since(SystemClock.now()) > day);
        std::fs::write(&file, "-864000").unwrap();
        assert!(SystemClock.now().since(clock.now()) > day);
    }
}
