//! The byte stream to the agent: two FIFOs, each opened for both directions, so that neither side
//! sees an end of file when the other goes away, and a restarted daemon can open them again by
//! path.
//!
//! Bytes of an earlier stream may still be in transit: the protocol's resynchronisation skips them.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use dorm_engine::StreamEnd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{self, Receiver, Sender};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::GvisorError;
use crate::notes::Home;

/// Ends a [`FifoStream`] when it is dropped: the stream then behaves as if the agent had closed it.
#[derive(Debug)]
pub(crate) struct Thread {
    _cut: DropGuard,
}

/// The daemon's end of the stream.
#[derive(Debug)]
pub(crate) struct FifoStream {
    from_agent: Receiver,
    to_agent: Sender,
    cut: StreamEnd,
}

/// Opens the stream of the container in `home`, after discarding the agent's unread output.
pub(crate) fn open(home: &Home) -> Result<(FifoStream, Thread), GvisorError> {
    let (output, input) = (home.output(), home.input());
    let from_agent = pipe::OpenOptions::new().read_write(true).open_receiver(&output);
    let from_agent = from_agent.map_err(|source| GvisorError::file("open", &output, source))?;
    let to_agent = pipe::OpenOptions::new().read_write(true).open_sender(&input);
    let to_agent = to_agent.map_err(|source| GvisorError::file("open", &input, source))?;
    drain(&from_agent).map_err(|source| GvisorError::file("read", &output, source))?;
    let cut = CancellationToken::new();
    let stream = FifoStream { from_agent, to_agent, cut: StreamEnd::new(cut.clone()) };
    Ok((stream, Thread { _cut: cut.drop_guard() }))
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

impl AsyncRead for FifoStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Before any data, which may be for the next stream.
        if self.cut.poll_reader(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.from_agent).poll_read(context, into)
    }
}

impl AsyncWrite for FifoStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.poll_writer(context).is_ready() {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::bundle::make_fifos;

    #[tokio::test]
    async fn reader_and_writer_that_wait_in_two_tasks_both_see_the_cut() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path()).unwrap();
        fs::create_dir(home.directory()).unwrap();
        make_fifos(&home).unwrap();
        let (stream, thread) = open(&home).unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let reading = tokio::spawn(async move { reader.read(&mut [0]).await });
        tokio::task::yield_now().await;
        // More than a FIFO takes, so that the writer is the last of both to wait.
        let writing = tokio::spawn(async move { writer.write_all(&vec![0; 4 << 20]).await });
        tokio::task::yield_now().await;
        drop(thread);
        assert_eq!(reading.await.unwrap().unwrap(), 0);
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
