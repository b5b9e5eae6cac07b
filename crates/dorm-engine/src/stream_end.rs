//! The end of a stream whose other side disappears in silence.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Ends a stream when a token is cancelled. The reader and the writer of a stream may be two tasks,
/// and a future wakes only one of them, so each has its own.
#[derive(Debug)]
pub struct StreamEnd {
    token: CancellationToken,
    reader: Pin<Box<WaitForCancellationFutureOwned>>,
    writer: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl StreamEnd {
    /// Returns the end of a stream for when `token` is cancelled.
    #[must_use]
    pub fn new(token: CancellationToken) -> Self {
        let side = || Box::pin(token.clone().cancelled_owned());
        Self { reader: side(), writer: side(), token }
    }

    /// Resolves for the reader.
    pub fn poll_reader(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Self::poll(&self.token, &mut self.reader, context)
    }

    /// Resolves for the writer.
    pub fn poll_writer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Self::poll(&self.token, &mut self.writer, context)
    }

    fn poll(
        token: &CancellationToken,
        side: &mut Pin<Box<WaitForCancellationFutureOwned>>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        // A future that has resolved must not be polled again.
        if token.is_cancelled() { Poll::Ready(()) } else { side.as_mut().poll(context) }
    }
}
