//! The byte stream to the agent: two FIFOs, each opened for both directions, so that neither side
//! sees an end of file when the other goes away, and a restarted daemon can open them again by
//! path.
//!
//! Bytes of an earlier stream may still be in transit: the protocol's resynchronisation skips them.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{self, Receiver, Sender};
use tokio::sync::oneshot;

use crate::error::GvisorError;
use crate::notes::Home;

/// Ends a [`FifoStream`] when it is dropped: the stream then behaves as if the agent had closed it.
#[derive(Debug)]
pub(crate) struct Thread {
    _cut: oneshot::Sender<()>,
}

/// The daemon's end of the stream.
#[derive(Debug)]
pub(crate) struct FifoStream {
    from_agent: Receiver,
    to_agent: Sender,
    cut: oneshot::Receiver<()>,
    is_cut: bool,
}

/// Opens the stream of the container in `home`, after discarding the agent's unread output.
pub(crate) fn open(home: &Home) -> Result<(FifoStream, Thread), GvisorError> {
    let (output, input) = (home.output(), home.input());
    let from_agent = pipe::OpenOptions::new().read_write(true).open_receiver(&output);
    let from_agent = from_agent.map_err(|source| GvisorError::file("open", &output, source))?;
    let to_agent = pipe::OpenOptions::new().read_write(true).open_sender(&input);
    let to_agent = to_agent.map_err(|source| GvisorError::file("open", &input, source))?;
    drain(&from_agent).map_err(|source| GvisorError::file("read", &output, source))?;
    let (sender, cut) = oneshot::channel();
    Ok((FifoStream { from_agent, to_agent, cut, is_cut: false }, Thread { _cut: sender }))
}

/// Opens one FIFO for both directions, to be passed to a sandbox.
pub(crate) fn fifo(path: &Path) -> Result<fs::File, GvisorError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.map_err(|source| GvisorError::file("open", path, source))
}

fn drain(from_agent: &Receiver) -> io::Result<()> {
    let mut buffer = vec![0_u8; 64 << 10];
    // An agent in the middle of a long output refills it as fast as it is read: the rest is skipped
    // later.
    for _ in 0..64 {
        match from_agent.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl FifoStream {
    fn poll_cut(&mut self, context: &mut Context<'_>) -> bool {
        if !self.is_cut && Pin::new(&mut self.cut).poll(context).is_ready() {
            self.is_cut = true;
        }
        self.is_cut
    }
}

impl AsyncRead for FifoStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_cut(context) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.from_agent).poll_read(context, into)
    }
}

impl AsyncWrite for FifoStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.poll_cut(context) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.to_agent).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
