//! The end of a stream whose other side disappears in silence.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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

/// A connection to a port of a sandbox, which breaks when its network lease is released, or when
/// its guest is suspended. Bytes that have arrived before can still be read.
#[derive(Debug)]
pub struct PortStream<S> {
    stream: S,
    end: StreamEnd,
}

impl<S> PortStream<S> {
    /// Returns `stream` until `end` is cancelled.
    #[must_use]
    pub fn new(stream: S, end: CancellationToken) -> Self {
        Self { stream, end: StreamEnd::new(end) }
    }

    /// Fails when the connection has to end.
    fn poll_write_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.end.poll_writer(context).map(|()| broken())
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the run of the sandbox has ended, or is suspended")
}

impl<S: AsyncRead + Unpin> AsyncRead for PortStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => self.end.poll_reader(context).map(|()| Err(broken())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PortStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.poll_write_end(context) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_write_end(context) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Pin::new(&mut self.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.poll_write_end(context) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
