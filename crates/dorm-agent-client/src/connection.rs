//! The connection: one task writes to the stream, another one reads from it and passes each frame
//! to its channel.
//!
//! The reader never waits for a caller: see [`Inbox`].

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use dorm_agent_proto::frame::{self, Decoder, Frame, Kind};
use dorm_agent_proto::{Hello, Nonce, Resync, VERSION, legible};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::credit::Credit;
use crate::error::AgentError;
use crate::inbox::{Bounds, Inbox};

const READ_BYTES: usize = 64 * 1024;

/// How many credit frames the agent may leave unread: up to two for each open channel, and these
/// for channels that have ended.
const CREDITS_UNREAD_MAX: usize = 4 * 1024;

/// How many bytes may wait to be written before data of streams has to wait. An agent can give
/// credit for data that it has not read.
const DATA_QUEUED_MAX: usize = 1 << 20;

/// How many bytes may wait to be written before calls are refused.
const CALLS_QUEUED_MAX: usize = 32 << 20;

/// Outgoing frames.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Sent as soon as possible; held back while the agent is quiet.
    Frames(Vec<u8>),
    /// The same, with credit.
    Credit(Vec<u8>),
    /// Followed by nothing until the next `Continue`.
    Quiesce(Vec<u8>),
    /// Ends the quiet period.
    Continue(Vec<u8>),
}

impl Outgoing {
    fn len(&self) -> usize {
        match self {
            Self::Frames(bytes) | Self::Credit(bytes) | Self::Quiesce(bytes) | Self::Continue(bytes) => bytes.len(),
        }
    }
}

/// An open connection. Dropping the last handle ends it.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    next: AtomicU32,
    hello: Hello,
    _guard: DropGuard,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    closed: CancellationToken,
    /// When anything was last received.
    heard: Mutex<Instant>,
    /// How many credit frames are not written yet.
    credits: AtomicUsize,
    /// How many bytes are not written yet.
    queued: AtomicUsize,
    /// The tasks that wait until fewer are.
    crowd: Mutex<Vec<Waker>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<u32, Entry>,
    end: Option<Reason>,
}

#[derive(Clone, Debug)]
enum Reason {
    Ended,
    Failed(Arc<io::Error>),
    Nonsense(String),
}

#[derive(Debug)]
struct Entry {
    inbox: Arc<Inbox>,
    credit: Arc<Credit>,
}

impl Connection {
    pub(crate) async fn open<T>(stream: T, generation: u64) -> Result<Self, AgentError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut nonce = Nonce([0; 16]);
        getrandom::fill(&mut nonce.0).map_err(|error| failed(io::Error::other(error)))?;
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut decoder = Decoder::for_host(nonce);
        // The agent may have to write old bytes before it can read, so both directions must
        // progress.
        let say = async {
            writing.write_all(&frame::resync(&Resync { nonce, generation, version: VERSION })).await?;
            writing.flush().await
        };
        let ((), hello) = tokio::try_join!(say, listen(&mut reading, &mut decoder)).map_err(failed)?;
        let hello: Hello = serde_json::from_slice(hello.get(nonce.0.len()..).unwrap_or_default())
            .map_err(|error| AgentError::Protocol(format!("an invalid hello: {error}")))?;
        if hello.version != VERSION {
            return Err(AgentError::Version { agent: hello.version, host: VERSION });
        }
        let closed = CancellationToken::new();
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            closed: closed.clone(),
            heard: Mutex::new(Instant::now()),
            credits: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            crowd: Mutex::default(),
        });
        let (outgoing, queue) = mpsc::unbounded_channel();
        tokio::spawn(write(writing, queue, Arc::clone(&shared)));
        tokio::spawn(read(reading, decoder, Arc::clone(&shared)));
        Ok(Self { shared, outgoing, next: AtomicU32::new(1), hello, _guard: closed.drop_guard() })
    }

    pub(crate) fn hello(&self) -> Hello {
        self.hello
    }

    pub(crate) async fn closed(&self) {
        self.shared.closed.cancelled().await;
    }

    /// Returns when anything was last received from the agent.
    pub(crate) fn heard(&self) -> Instant {
        *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }

    pub(crate) fn close(&self) {
        self.shared.closed.cancel();
    }

    /// Adds a new channel.
    pub(crate) fn add(&self, bounds: Bounds) -> Result<(u32, Arc<Inbox>, Arc<Credit>), AgentError> {
        let mut table = self.shared.lock();
        if table.end.is_some() || self.shared.closed.is_cancelled() {
            return Err(table.error());
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (inbox, credit) = (Arc::new(Inbox::new(bounds)), Arc::new(Credit::new()));
        table.entries.insert(id, Entry { inbox: Arc::clone(&inbox), credit: Arc::clone(&credit) });
        Ok((id, inbox, credit))
    }

    pub(crate) fn remove(&self, id: u32) {
        self.shared.lock().entries.remove(&id);
    }

    /// Queues frames. After the end of the connection they are dropped; the channel's receiver
    /// reports it.
    pub(crate) fn send(&self, outgoing: Outgoing) {
        if matches!(outgoing, Outgoing::Credit(_)) {
            let unread = self.shared.credits.fetch_add(1, Ordering::Relaxed);
            if unread >= CREDITS_UNREAD_MAX && unread >= CREDITS_UNREAD_MAX + 2 * self.shared.lock().entries.len() {
                self.shared.end(Reason::Nonsense("too much data without reading any".to_owned()));
            }
        }
        self.shared.queued.fetch_add(outgoing.len(), Ordering::Relaxed);
        drop(self.outgoing.send(outgoing));
    }

    /// Whether so much waits to be written that no more calls may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) >= CALLS_QUEUED_MAX
    }

    /// Waits until so little waits to be written that more data may be added, or until the
    /// connection has ended.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.shared.has_room() {
            return Poll::Ready(());
        }
        let mut crowd = self.shared.crowd.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer empties the list after it has made room.
        if self.shared.has_room() {
            return Poll::Ready(());
        }
        if !crowd.iter().any(|waiting| waiting.will_wake(context.waker())) {
            crowd.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns why nothing more arrives.
    pub(crate) fn error(&self) -> AgentError {
        self.shared.lock().error()
    }

    /// Closes the connection because of a protocol violation.
    pub(crate) fn give_up(&self, reason: &str) -> AgentError {
        let reason = legible(reason);
        self.shared.end(Reason::Nonsense(reason.clone()));
        AgentError::Protocol(reason)
    }
}

fn failed(error: io::Error) -> AgentError {
    AgentError::Closed { source: Some(Arc::new(error)) }
}

impl Table {
    fn error(&self) -> AgentError {
        match &self.end {
            None | Some(Reason::Ended) => AgentError::Closed { source: None },
            Some(Reason::Failed(error)) => AgentError::Closed { source: Some(Arc::clone(error)) },
            Some(Reason::Nonsense(reason)) => AgentError::Protocol(reason.clone()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all tasks that wait for this connection.
    fn end(&self, reason: Reason) {
        let mut table = self.lock();
        table.end.get_or_insert(reason);
        // In the order of their IDs, so that waiting tasks are always woken in the same order.
        while let Some((_, entry)) = table.entries.pop_first() {
            entry.credit.close();
            entry.inbox.close();
        }
        drop(table);
        self.closed.cancel();
        self.wake_crowd();
    }

    fn has_room(&self) -> bool {
        self.queued.load(Ordering::SeqCst) < DATA_QUEUED_MAX || self.closed.is_cancelled()
    }

    /// Wakes the tasks that wait for room, if there is some.
    fn wake_crowd(&self) {
        if self.has_room() {
            let crowd = std::mem::take(&mut *self.crowd.lock().unwrap_or_else(PoisonError::into_inner));
            crowd.into_iter().for_each(Waker::wake);
        }
    }

    fn dispatch(&self, frame: Frame) -> Result<(), String> {
        let (inbox, credit) = match self.lock().entries.get(&frame.channel) {
            Some(entry) => (Arc::clone(&entry.inbox), Arc::clone(&entry.credit)),
            // The caller may have just dropped its channel.
            None => return Ok(()),
        };
        match frame.kind {
            Kind::Credit => {
                let bytes = frame.payload.try_into().map_err(|_| "a credit frame without a number".to_owned())?;
                credit.add(u32::from_le_bytes(bytes))
            }
            Kind::Answer | Kind::Data | Kind::Event | Kind::End => inbox.put(frame),
            Kind::Resync | Kind::Hello | Kind::Request | Kind::Cancel => {
                Err(format!("an unexpected frame of kind {:?}", frame.kind))
            }
        }
    }
}

/// Reads until the agent's hello, and returns its payload.
async fn listen(reading: &mut (impl AsyncRead + Unpin), decoder: &mut Decoder) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if let Some(frame) = decoder.next_frame() {
            return Ok(frame.payload);
        }
        match reading.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => decoder.push(&buffer[..length]),
        }
    }
}

async fn read(mut reading: impl AsyncRead + Unpin, mut decoder: Decoder, shared: Arc<Shared>) {
    let mut buffer = vec![0; READ_BYTES];
    let reason = loop {
        let mut nonsense = None;
        while let Some(frame) = decoder.next_frame() {
            if let Err(reason) = shared.dispatch(frame) {
                nonsense = Some(reason);
                break;
            }
        }
        if let Some(reason) = nonsense {
            break Reason::Nonsense(reason);
        }
        if !decoder.in_step() {
            break Reason::Nonsense("bytes that are not a frame".to_owned());
        }
        let read = tokio::select! {
            biased;
            () = shared.closed.cancelled() => break Reason::Ended,
            read = reading.read(&mut buffer) => read,
        };
        match read {
            Ok(0) => break Reason::Ended,
            Ok(length) => {
                *shared.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                decoder.push(&buffer[..length]);
            }
            Err(error) => break Reason::Failed(Arc::new(error)),
        }
    };
    shared.end(reason);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    Quiet,
}

/// Frames, and how many of them give credit.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    credits: usize,
}

impl Frames {
    fn add(&mut self, bytes: &[u8], credits: usize) {
        self.bytes.extend_from_slice(bytes);
        self.credits += credits;
    }
}

/// Sorts outgoing frames into those to write now and those held back while the agent is quiet.
struct Sorter {
    flow: Flow,
    now: Frames,
    held: Frames,
}

impl Sorter {
    fn take(&mut self, outgoing: Outgoing) {
        let to = match self.flow {
            Flow::Open => &mut self.now,
            Flow::Quiet => &mut self.held,
        };
        match outgoing {
            Outgoing::Frames(frames) => to.add(&frames, 0),
            Outgoing::Credit(frames) => to.add(&frames, 1),
            Outgoing::Quiesce(frames) => {
                self.now.add(&frames, 0);
                self.flow = Flow::Quiet;
            }
            Outgoing::Continue(frames) => {
                let held = std::mem::take(&mut self.held);
                self.now.add(&frames, 0);
                self.now.add(&held.bytes, held.credits);
                self.flow = Flow::Open;
            }
        }
    }
}

async fn write(
    mut writing: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    shared: Arc<Shared>,
) {
    let mut sorter = Sorter { flow: Flow::Open, now: Frames::default(), held: Frames::default() };
    loop {
        let outgoing = tokio::select! {
            biased;
            () = shared.closed.cancelled() => break,
            outgoing = queue.recv() => outgoing,
        };
        let Some(outgoing) = outgoing else { break };
        sorter.take(outgoing);
        while sorter.now.bytes.len() < READ_BYTES {
            match queue.try_recv() {
                Ok(outgoing) => sorter.take(outgoing),
                Err(_) => break,
            }
        }
        let done = async {
            writing.write_all(&sorter.now.bytes).await?;
            writing.flush().await
        };
        let done = tokio::select! {
            biased;
            () = shared.closed.cancelled() => break,
            done = done => done,
        };
        if let Err(error) = done {
            shared.end(Reason::Failed(Arc::new(error)));
            break;
        }
        shared.credits.fetch_sub(sorter.now.credits, Ordering::Relaxed);
        shared.queued.fetch_sub(sorter.now.bytes.len(), Ordering::SeqCst);
        shared.wake_crowd();
        sorter.now.bytes.clear();
        sorter.now.credits = 0;
    }
}
