//! Signals that ask this process to end.

use tokio::signal::unix::{SignalKind, signal};

use super::problem::Problem;
use crate::exit;

/// The signals that ask this process to end.
pub(crate) struct Signals {
    receivers: [(i32, tokio::signal::unix::Signal); 4],
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Problem> {
        let listen = |kind: SignalKind| {
            let receiver = signal(kind).map_err(|error| Problem::host("listen for signals", &error))?;
            Ok::<_, Problem>((kind.as_raw_value(), receiver))
        };
        let receivers = [
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
            listen(SignalKind::quit())?,
        ];
        Ok(Self { receivers })
    }

    /// Waits for the next signal and returns its number.
    pub(crate) async fn next(&mut self) -> i32 {
        let [first, second, third, fourth] = &mut self.receivers;
        tokio::select! {
            _ = first.1.recv() => first.0,
            _ = second.1.recv() => second.0,
            _ = third.1.recv() => third.0,
            _ = fourth.1.recv() => fourth.0,
        }
    }
}

/// Returns the exit code of a process that a signal ended.
pub(crate) fn ended_by(signal: i32) -> u8 {
    exit::SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}
