//! Waits between attempts at what has to come about: longer and longer ones, so that something that does not work for long
//! costs little and fills no log.

use std::time::Duration;

/// Waits between attempts, each twice as long as the one before.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// The first wait, and the longest.
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { next: first, longest }
    }

    /// How long to wait now.
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
