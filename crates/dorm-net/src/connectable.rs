//! Connections to ports of sandboxes. The network of a sandbox disappears in silence: nothing tells
//! the host's end of a connection, and its reader would wait until the kernel gives up. So each
//! connection breaks when its lease is released.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_engine::LeaseId;
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

#[cfg(test)]
mod tests {
    use std::io;

    use dorm_engine::PortStream;
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
