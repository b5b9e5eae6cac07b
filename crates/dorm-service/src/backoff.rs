//! Delays between attempts that have to succeed eventually: they grow, so that a long failure costs
//! little and does not fill the log.

use std::time::Duration;

/// The delays between attempts, each twice as long as the one before.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns delays with the given first and longest value.
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { next: first, longest }
    }

    /// Returns the next delay.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new((Duration::from_secs(1), Duration::from_secs(5)));
        let waits: Vec<_> = (0..5).map(|_| backoff.wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
    }
}
