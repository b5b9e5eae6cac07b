//! The repetition of requests.
//!
//! A request is repeated only if carrying it out twice has the effect of carrying it out once: it
//! reads, or it has an idempotency key. It is repeated if there was no response, or if the daemon
//! says that it is not available at the moment.

use std::time::Duration;

use reqwest::{Method, Request};
use tokio::time::Instant;

use super::ClientError;

/// The header with the idempotency key of a request.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause that a daemon may ask for.
const LONGEST_WISH: Duration = Duration::from_secs(30);

/// How often requests are sent again, and for how long streams are continued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// How often one request is sent again, with pauses that grow from a quarter of a second to
    /// four. Default 5.
    pub requests: u32,
    /// For how long a stream whose connection is lost tries to continue where it was, each time.
    /// Default one minute.
    pub streams: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { requests: 5, streams: Duration::from_secs(60) }
    }
}

impl Retries {
    /// Every request is sent once, and every stream ends with its connection.
    pub const NONE: Self = Self { requests: 0, streams: Duration::ZERO };
}

/// The attempts to send one request.
pub(super) struct Attempts {
    /// The request, until it has been sent for the last time.
    request: Option<Request>,
    made: u32,
    most: u32,
}

impl Attempts {
    pub(super) fn new(request: Request, retries: Retries) -> Self {
        let is_safe = request.method() == Method::GET || request.headers().contains_key(IDEMPOTENCY_KEY);
        let most = if is_safe && request.try_clone().is_some() { 1 + retries.requests } else { 1 };
        Self { request: Some(request), made: 0, most }
    }

    /// Returns the request to send now, or none after the last attempt.
    pub(super) fn next(&mut self) -> Option<Request> {
        self.made += 1;
        if self.made < self.most { self.request.as_ref().and_then(Request::try_clone) } else { self.request.take() }
    }

    /// Waits until the next attempt, or returns the error if there is none.
    pub(super) async fn pause(&self, error: ClientError) -> Result<(), ClientError> {
        if self.request.is_none() || !error.is_passing() {
            return Err(error);
        }
        let wish = error.retry_after().map(|wish| wish.min(LONGEST_WISH));
        tokio::time::sleep(wish.unwrap_or_else(|| pause(self.made - 1))).await;
        Ok(())
    }
}

/// The attempts to continue a stream.
#[derive(Clone, Debug)]
pub(crate) struct Reconnects {
    within: Duration,
    until: Option<Instant>,
    made: u32,
}

impl Reconnects {
    pub(crate) const fn new(retries: Retries) -> Self {
        Self { within: retries.streams, until: None, made: 0 }
    }

    /// The stream has delivered something: the next loss has all of the time again.
    pub(crate) fn delivered(&mut self) {
        (self.until, self.made) = (None, 0);
    }

    /// Waits until the next attempt, or returns the error if there is none.
    pub(crate) async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.within);
        if !error.is_passing() || Instant::now() >= until {
            return Err(error);
        }
        tokio::time::sleep(pause(self.made)).await;
        self.made += 1;
        Ok(())
    }
}

/// Returns the pause after `made` failures: between half and all of a time that doubles.
fn pause(made: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << made.min(10)).min(LONGEST_PAUSE);
    let mut random = [0];
    // Without randomness, several clients may ask at the same moment, which is no error.
    let _ = getrandom::fill(&mut random);
    whole.mul_f64(0.5 + f64::from(random[0]) / 512.0)
}

/// Returns a new idempotency key, or none if there is no randomness: the request is then not
/// repeated.
pub(super) fn idempotency_key() -> Option<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).ok()?;
    Some(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_four_seconds() {
        for (made, most) in [(0, 250), (1, 500), (2, 1000), (3, 2000), (4, 4000), (5, 4000), (40, 4000)] {
            let most = Duration::from_millis(most);
            let pause = pause(made);
            assert!(pause >= most / 2 && pause <= most, "{made}: {pause:?}");
        }
    }

    #[test]
    fn idempotency_keys_differ() {
        let (one, other) = (idempotency_key().unwrap(), idempotency_key().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
