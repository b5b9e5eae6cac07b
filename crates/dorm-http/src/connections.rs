//! Limits on connections from the network, so that clients without a key leave room for those with
//! one.
//!
//! ```text
//! accepted ─► unknown ─┬─► known    showed a key
//!                      ├─► visitor  named a port of a sandbox by its id
//!                      └─► closed   no key within a time, or in the way of a newer one while it is idle
//! ```
//!
//! A connection that must close sees the end of its stream where it would otherwise wait for the
//! next bytes. So a request that has arrived is answered first, however late it is read.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long a connection that must close has to do so. One whose client sends without reading, say,
/// is not read any more, and never sees the end of its stream.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Limits on the number of open connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// All connections from the network, without those that must close. There are at most as many
    /// of these as `unknown`.
    pub total: usize,
    /// Connections to ports of sandboxes, which need no key.
    pub visitors: usize,
    /// Connections that have not shown a key for some time.
    pub unknown: usize,
    /// All connections that have not shown a key yet.
    pub unknown_at_once: usize,
    /// How long a connection that has not shown a key may be idle.
    pub unknown_for: Duration,
    /// How long it counts as new. A client may open very many connections at once, whose requests
    /// come a moment later, and a busy host reads them later still.
    pub new_for: Duration,
}

impl ConnectionLimits {
    /// Limits that leave most of this many file descriptors to sandboxes.
    pub fn of_descriptors(descriptors: u64) -> Self {
        let total = usize::try_from(descriptors / 4).unwrap_or(usize::MAX).clamp(64, 4096);
        Self {
            total,
            visitors: total / 2,
            unknown: (total / 4).min(256),
            unknown_at_once: total / 4 * 3,
            unknown_for: Duration::from_secs(10),
            new_for: Duration::from_secs(5),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::of_descriptors(u64::MAX)
    }
}

/// The state of a connection, by what its client has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The client has shown nothing.
    Unknown,
    /// The client has named a port of a sandbox, whose id it knows.
    Visitor,
    /// The client has shown a key.
    Known,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    /// Number of requests that are being answered.
    under_way: usize,
    since: Instant,
    close: CancellationToken,
    /// Whether bytes were waiting to be read when it last had to close.
    has_unread: bool,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.standing == Standing::Unknown && self.under_way == 0
    }

    /// Whether it must close, unless a key has arrived already.
    fn is_leaving(&self) -> bool {
        self.standing == Standing::Unknown && self.close.is_cancelled()
    }
}

/// All connections from the network, the oldest first.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    all: Mutex<(u64, BTreeMap<u64, Entry>)>,
}

impl Connections {
    /// No connections yet, with these limits. One value serves all doors of a daemon.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, all: Mutex::default() })
    }

    /// Admits one more connection. If there is no room, the oldest idle one that has shown no key
    /// must close; `None` if there is none of those.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(Arc<Ticket>, Closing)> {
        let mut all = self.lock();
        let (next, entries) = &mut *all;
        let now = Instant::now();
        let leaving = entries.values().filter(|entry| entry.is_leaving()).count();
        let unknown = count(entries, Standing::Unknown) - leaving;
        let is_full = entries.len() - leaving >= self.limits.total || unknown >= self.limits.unknown_at_once;
        if is_full || unknown >= self.limits.unknown {
            let is_new = |entry: &Entry| now < entry.since + self.limits.new_for;
            let oldest = entries
                .values()
                .find(|entry| entry.is_idle() && !entry.is_leaving() && (is_full || !is_new(entry)))
                .filter(|_| leaving < self.limits.unknown);
            match oldest {
                Some(oldest) => oldest.close.cancel(),
                None if is_full => return None,
                None => {}
            }
        }
        let (number, close) = (*next, CancellationToken::new());
        *next += 1;
        let entry =
            Entry { standing: Standing::Unknown, under_way: 0, since: now, close: close.clone(), has_unread: false };
        entries.insert(number, entry);
        drop(all);
        let ticket = Arc::new(Ticket { connections: self.clone(), number, close: close.clone() });
        let closing = Closing { connections: self.clone(), number, close };
        Some((ticket, closing))
    }

    /// Tells a client that there is no room for its connection, if it can be told without waiting.
    pub(crate) fn refuse(&self, stream: &TcpStream, full: &[u8]) {
        metrics::counter!("dorm_connections_refused_total").increment(1);
        let _ = stream.try_write(full);
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Entry>)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(entries: &BTreeMap<u64, Entry>, standing: Standing) -> usize {
    entries.values().filter(|entry| entry.standing == standing).count()
}

/// The place of a connection. It is freed when the connection, or what it was upgraded to, has
/// ended.
#[derive(Debug)]
pub struct Ticket {
    connections: Arc<Connections>,
    number: u64,
    close: CancellationToken,
}

impl Ticket {
    /// Sets the state of the connection. Returns whether there is room for it in that state.
    pub fn stand(&self, standing: Standing) -> bool {
        let mut all = self.connections.lock();
        let entries = &mut all.1;
        let has_room =
            standing != Standing::Visitor || { count(entries, Standing::Visitor) < self.connections.limits.visitors };
        match entries.get_mut(&self.number) {
            // A connection that has shown a key stays known.
            Some(entry) if entry.standing == Standing::Known || entry.standing == standing => true,
            Some(entry) if has_room => {
                entry.standing = standing;
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Whether the connection must close now: it is idle, and nothing has arrived on its stream.
    /// The runtime may not know of the latest bytes yet, so the system is asked.
    fn ends(&self, stream: &TcpStream) -> bool {
        use rustix::net::{RecvFlags, recv};
        let mut all = self.connections.lock();
        let Some(entry) = all.1.get_mut(&self.number) else { return false };
        if !entry.is_idle() {
            return false;
        }
        let arrived = recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        entry.has_unread = arrived.is_ok_and(|(bytes, _)| bytes > 0);
        !entry.has_unread
    }

    /// Counts a request as being answered until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        if let Some(entry) = self.connections.lock().1.get_mut(&self.number) {
            entry.under_way += 1;
        }
        UnderWay(self.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.connections.lock().1.remove(&self.number);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Ticket>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(entry) = self.0.connections.lock().1.get_mut(&self.0.number) {
            entry.under_way = entry.under_way.saturating_sub(1);
        }
    }
}

/// The signal that a connection must close.
#[derive(Debug)]
pub(crate) struct Closing {
    connections: Arc<Connections>,
    number: u64,
    close: CancellationToken,
}

impl Closing {
    /// Asks the connection to close when it must make room for another one, or has been idle too
    /// long without a key. Returns when it has not closed by itself.
    pub(crate) async fn overdue(self) {
        loop {
            tokio::select! {
                () = self.close.cancelled(), if !self.close.is_cancelled() => {}
                () = tokio::time::sleep(self.connections.limits.unknown_for) => {}
            }
            match self.connections.lock().1.get(&self.number) {
                Some(entry) if entry.is_idle() => self.close.cancel(),
                Some(_) => continue,
                None => return,
            }
            tokio::time::sleep(CLOSED_WITHIN).await;
            // Once: bytes that are not read until the next time do not keep it.
            let keeps = |entry: &mut Entry| std::mem::take(&mut entry.has_unread) || !entry.is_idle();
            if !self.connections.lock().1.get_mut(&self.number).is_some_and(keeps) {
                return;
            }
        }
    }
}

/// A stream that keeps its connection's place, even after an upgrade, and ends when the connection
/// must close.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: TcpStream,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    ticket: Arc<Ticket>,
}

impl Counted {
    pub(crate) fn new(stream: TcpStream, ticket: Arc<Ticket>) -> Self {
        Self { stream, closed: Box::pin(ticket.close.clone().cancelled_owned()), ticket }
    }

    /// Returns the first byte without taking it; `None` if the stream ended before it.
    pub(crate) async fn first(&mut self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let mut to = ReadBuf::new(&mut first);
        std::future::poll_fn(|context| match self.stream.poll_peek(context, &mut to) {
            Poll::Pending if self.ends(context) => Poll::Ready(Ok(0)),
            peeked => peeked,
        })
        .await?;
        Ok(to.filled().first().copied())
    }

    /// Whether the stream ends here. Otherwise the task is woken when it may have to.
    fn ends(&mut self, context: &mut Context<'_>) -> bool {
        // Once ready, the future is not asked again.
        (self.ticket.close.is_cancelled() || self.closed.as_mut().poll(context).is_ready())
            && self.ticket.ends(&self.stream)
    }

    /// Writes bytes if they can be written without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes)
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, to) {
            Poll::Pending if self.ends(context) => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
