//! Connections to ports of sandboxes. The network of a sandbox disappears in silence: nothing tells
//! the host's end of a connection, and its reader would wait until the kernel gives up. So each
//! connection breaks when its lease is released.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use dorm_engine::{LeaseId, StreamEnd};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The leases to whose ports connections may be made.
#[derive(Debug, Default)]
pub(crate) struct Connectable(Mutex<BTreeMap<LeaseId, CancellationToken>>);

impl Connectable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease.
    pub(crate) fn add(&self, lease: LeaseId) {
        self.lock().insert(lease, CancellationToken::new());
    }

    /// Returns what is cancelled when the lease is released.
    pub(crate) fn released(&self, lease: LeaseId) -> Option<CancellationToken> {
        self.lock().get(&lease).cloned()
    }

    /// Breaks the connections of a lease.
    pub(crate) fn remove(&self, lease: LeaseId) {
        if let Some(released) = self.lock().remove(&lease) {
            released.cancel();
        }
    }
}

/// A connection that breaks when the lease is released. What has arrived before can still be read.
#[derive(Debug)]
pub(crate) struct PortStream<S> {
    stream: S,
    end: StreamEnd,
}

impl<S> PortStream<S> {
    pub(crate) fn new(stream: S, released: CancellationToken) -> Self {
        Self { stream, end: StreamEnd::new(released) }
    }

    /// Fails when the lease is released.
    fn poll_write_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.end.poll_writer(context).map(|()| broken())
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the run of the sandbox has ended")
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const LEASE: LeaseId = LeaseId(7);

    fn connected(leases: &Connectable) -> (PortStream<DuplexStream>, DuplexStream) {
        let (ours, inside) = tokio::io::duplex(64);
        (PortStream::new(ours, leases.released(LEASE).unwrap()), inside)
    }

    #[tokio::test]
    async fn bytes_pass_in_both_directions_until_the_lease_is_released() {
        let leases = Connectable::default();
        leases.add(LEASE);
        let (mut stream, mut inside) = connected(&leases);
        stream.write_all(b"to it").await.unwrap();
        inside.write_all(b"from it").await.unwrap();
        let mut seen = [0; 7];
        inside.read_exact(&mut seen[..5]).await.unwrap();
        assert_eq!(&seen[..5], b"to it");
        stream.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"from it");
        leases.remove(LEASE);
        assert!(leases.released(LEASE).is_none());
    }

    #[tokio::test]
    async fn reader_and_writer_that_wait_in_two_tasks_both_fail_at_the_release() {
        let leases = Connectable::default();
        leases.add(LEASE);
        let (stream, _inside) = connected(&leases);
        let (mut reader, mut writer) = tokio::io::split(stream);
        let reading = tokio::spawn(async move { reader.read(&mut [0]).await });
        let writing = tokio::spawn(async move { writer.write_all(&[0; 4096]).await });
        tokio::task::yield_now().await;
        leases.remove(LEASE);
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn what_has_arrived_is_read_after_the_release() {
        let leases = Connectable::default();
        leases.add(LEASE);
        let (mut stream, mut inside) = connected(&leases);
        inside.write_all(b"last").await.unwrap();
        leases.remove(LEASE);
        let mut seen = [0; 4];
        stream.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"last");
        assert!(stream.read(&mut seen).await.is_err());
    }
}
