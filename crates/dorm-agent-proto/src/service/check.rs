//! The settings of a service that every agent refuses.

use super::{HealthCheck, Probe, RestartRules, ServiceSpec};
use crate::failure::Failure;
use crate::process::Stdin;

/// The longest time of any setting: a week.
const TIME_MAX_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The longest time of a probe.
const PROBE_MAX_MS: u64 = 60_000;
/// How many restarts are counted at most.
const RESTARTS_MAX: u32 = 10_000;
const PATH_MAX: usize = 2048;

impl ServiceSpec {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`Failure::Invalid`] with the setting and its limit.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |reason: String| Err(Failure::Invalid { reason });
        if self.process.terminal.is_some() || self.process.stdin != Stdin::Empty {
            return refuse("a service has neither a terminal nor an input".to_owned());
        }
        let RestartRules { delay_ms, delay_max_ms, most, window_ms, .. } = self.restart;
        let mut times =
            vec![("the first pause", delay_ms), ("the longest pause", delay_max_ms), ("the window", window_ms)];
        if delay_ms > delay_max_ms {
            return refuse("the first pause before a restart is longer than the longest one".to_owned());
        }
        if most > RESTARTS_MAX {
            return refuse(format!("it may be started again at most {RESTARTS_MAX} times in a window"));
        }
        if let Some(HealthCheck { probe, interval_ms, timeout_ms, failures, grace_ms }) = &self.health {
            times.extend([("the interval of its health check", *interval_ms), ("the grace", *grace_ms)]);
            if *interval_ms == 0 || *failures == 0 {
                return refuse("a health check needs an interval and a number of failures above 0".to_owned());
            }
            if *timeout_ms == 0 || *timeout_ms > PROBE_MAX_MS {
                return refuse(format!("a probe takes from 1 to {PROBE_MAX_MS} milliseconds"));
            }
            if let Probe::Http { path, .. } = probe
                && (!path.starts_with('/')
                    || path.len() > PATH_MAX
                    || path.bytes().any(|byte| !byte.is_ascii_graphic()))
            {
                return refuse(
                    "the path of a health check begins with / and has only visible ASCII characters".to_owned(),
                );
            }
            if matches!(probe, Probe::Tcp { port: 0 } | Probe::Http { port: 0, .. }) {
                return refuse("0 is not a port".to_owned());
            }
        }
        match times.into_iter().find(|(_, time)| *time > TIME_MAX_MS) {
            Some((what, _)) => refuse(format!("{what} is longer than a week")),
            None => Ok(()),
        }
    }
}
