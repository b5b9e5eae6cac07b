//! Bodies that are in memory as a whole.
//!
//! A client that sends all but the last byte of a body makes the daemon keep the rest. All bodies
//! of the process that are collected therefore have one budget, from which each takes its bytes as
//! they arrive, and a body that stalls is given up. The first bytes of each body are free, so that
//! small requests are answered while large ones use up the budget.
//!
//! A client that does not read makes the daemon keep the response. Those that are not streams and
//! may be large have a budget of their own in the same way.

use std::convert::Infallible;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use thiserror::Error;

/// The number of bytes of all bodies together.
const BUDGET_BYTES: usize = 128 << 20;
/// The number of bytes of all responses together.
pub const RESPONSES_BYTES: usize = 128 << 20;
/// The number of bytes of a response that are passed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;
/// The number of bytes of each body that are free.
const FREE_BYTES: usize = 64 << 10;
/// How long a body may take to its next byte.
const STALL: Duration = Duration::from_secs(30);

static OF_PROCESS: Budget = Budget(AtomicUsize::new(BUDGET_BYTES));
static OF_RESPONSES: Budget = Budget(AtomicUsize::new(RESPONSES_BYTES));

/// The reason why a body was not collected.
#[derive(Debug, Error)]
pub enum BodyError {
    /// It is longer than this many bytes.
    #[error("the request body is longer than {0} bytes")]
    TooLong(usize),
    /// The bodies of other requests use up the budget.
    #[error("the bodies of other requests take all the memory for bodies: try again in a moment")]
    NoRoom,
    /// The client sent nothing for too long.
    #[error("cannot read the request body: nothing arrived for {} seconds", STALL.as_secs())]
    Stalled,
    /// The connection broke, or the body is not valid HTTP.
    #[error("cannot read the request body: {0}")]
    Broken(axum::Error),
}

/// The bytes that are left.
#[derive(Debug)]
struct Budget(AtomicUsize);

impl Budget {
    fn take(&self, bytes: usize) -> Result<(), BodyError> {
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        taken.map(drop).map_err(|_| BodyError::NoRoom)
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// The part of the budget that one body has. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    budget: &'static Budget,
    bytes: usize,
}

impl Share {
    /// The share of a body of which nothing is held yet.
    pub fn empty() -> Self {
        Self::of(&OF_PROCESS)
    }

    /// The share of a response of which nothing is held yet.
    pub fn of_response() -> Self {
        Self::of(&OF_RESPONSES)
    }

    fn of(budget: &'static Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Sets the number of bytes of the body that are held. Fewer than before are always possible.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`], and the share stays as it was.
    pub fn hold(&mut self, bytes: usize) -> Result<(), BodyError> {
        let (before, after) = (charged(self.bytes), charged(bytes));
        if after > before {
            self.budget.take(after - before)?;
        } else {
            self.budget.give_back(before - after);
        }
        self.bytes = bytes;
        Ok(())
    }
}

fn charged(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(charged(self.bytes));
    }
}

/// A body that was collected, with its share of the budget. It can be the body of a request again.
#[derive(Debug)]
pub struct Collected {
    bytes: Bytes,
    share: Share,
}

impl Collected {
    /// Drops the bytes and keeps their share, for as long as there are copies of them.
    pub fn into_share(self) -> Share {
        self.share
    }
}

impl Deref for Collected {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Collected {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// Bytes that keep their share as long as there is a copy of them or of a part.
#[derive(Debug)]
struct Shared {
    bytes: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns bytes whose share is given back with the last copy of them.
///
/// # Errors
/// [`BodyError::NoRoom`].
pub fn shared(mut bytes: Vec<u8>, mut share: Share) -> Result<Bytes, BodyError> {
    bytes.shrink_to_fit();
    share.hold(bytes.len())?;
    Ok(Bytes::from_owner(Shared { bytes, _share: share }))
}

/// The body of a response that is in memory as a whole. The connection gets it in pieces: it may
/// copy what it has not sent yet.
#[derive(Debug)]
pub struct Whole(pub Bytes);

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.0.len().min(PIECE_BYTES);
        let piece = self.0.split_to(length);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// Collects a body of at most `most` bytes.
///
/// # Errors
/// [`BodyError`].
pub async fn collect(body: Body, most: usize) -> Result<Collected, BodyError> {
    collect_of(&OF_PROCESS, body, most).await
}

async fn collect_of(budget: &'static Budget, body: Body, most: usize) -> Result<Collected, BodyError> {
    let mut share = Share::of(budget);
    // One piece of memory: a list of the pieces as they arrive would be larger than the body.
    let mut bytes = BytesMut::new();
    let mut body = body.into_data_stream();
    while let Some(piece) = next_piece(&mut body).await? {
        if piece.len() > most - bytes.len() {
            return Err(BodyError::TooLong(most));
        }
        share.hold(bytes.len() + piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(Collected { bytes: bytes.freeze(), share })
}

/// Waits for the next bytes of a body; `None` at its end.
///
/// # Errors
/// [`BodyError::Stalled`], [`BodyError::Broken`].
pub async fn next_piece<S>(body: &mut S) -> Result<Option<Bytes>, BodyError>
where
    S: Stream<Item = Result<Bytes, axum::Error>> + Unpin,
{
    let next = tokio::time::timeout(STALL, body.next()).await.map_err(|_| BodyError::Stalled)?;
    next.transpose().map_err(BodyError::Broken)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::*;

    const MIB: usize = 1 << 20;

    fn budget(bytes: usize) -> &'static Budget {
        Box::leak(Box::new(Budget(AtomicUsize::new(bytes))))
    }

    impl Budget {
        fn left(&self) -> usize {
            self.0.load(Ordering::Acquire)
        }
    }

    type Sender = UnboundedSender<Result<Bytes, std::io::Error>>;
    type Collecting = JoinHandle<Result<Collected, BodyError>>;

    /// A body that is collected while its client sends it.
    fn sending(budget: &'static Budget, most: usize) -> (Sender, Collecting) {
        let (sender, receiver) = unbounded_channel();
        let pieces = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        (sender, tokio::spawn(collect_of(budget, Body::from_stream(pieces), most)))
    }

    async fn settle() {
        sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_that_stop_before_their_end_are_refused_beyond_the_budget_and_small_ones_collected() {
        let budget = budget(8 * MIB);
        let mut clients = Vec::new();
        for _ in 0..100 {
            let (sender, collecting) = sending(budget, MIB);
            sender.send(Ok(vec![7; MIB - 1].into())).unwrap();
            clients.push((sender, collecting));
        }
        settle().await;
        let refused = clients.iter().filter(|(_, collecting)| collecting.is_finished()).count();
        assert_eq!(refused, 100 - 8);
        let small = collect_of(budget, vec![1; FREE_BYTES].into(), MIB).await.unwrap();
        assert_eq!(small.len(), FREE_BYTES);
        let larger = collect_of(budget, vec![1; MIB].into(), MIB).await;
        assert!(matches!(larger, Err(BodyError::NoRoom)), "{larger:?}");
        // Those that were there first are collected when they end.
        for (sender, collecting) in clients {
            let was_refused = collecting.is_finished();
            let _ = sender.send(Ok(vec![7].into()));
            drop(sender);
            match collecting.await.unwrap() {
                Ok(body) => assert!(!was_refused && body.len() == MIB),
                Err(error) => assert!(was_refused && matches!(error, BodyError::NoRoom), "{error}"),
            }
        }
        assert_eq!(budget.left(), 8 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_ends_after_the_limit_and_gives_its_share_back() {
        let budget = budget(MIB);
        let (sender, collecting) = sending(budget, MIB);
        for _ in 0..10 {
            sender.send(Ok(vec![7; 50_000].into())).unwrap();
            sleep(STALL - Duration::from_secs(1)).await;
            assert!(!collecting.is_finished());
        }
        assert!(budget.left() < MIB);
        let began = Instant::now();
        assert!(matches!(collecting.await.unwrap(), Err(BodyError::Stalled)));
        assert!(began.elapsed() <= STALL);
        assert_eq!(budget.left(), MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_frees_its_share() {
        let budget = budget(MIB);
        let (broken, collecting) = sending(budget, MIB);
        broken.send(Ok(vec![7; MIB / 2].into())).unwrap();
        settle().await;
        assert_eq!(budget.left(), MIB - charged(MIB / 2));
        broken.send(Err(std::io::ErrorKind::ConnectionReset.into())).unwrap();
        assert!(matches!(collecting.await.unwrap(), Err(BodyError::Broken(_))));
        assert_eq!(budget.left(), MIB);
        // The server drops a request whose connection is gone.
        let (dropped, collecting) = sending(budget, MIB);
        dropped.send(Ok(vec![7; MIB / 2].into())).unwrap();
        settle().await;
        assert!(budget.left() < MIB);
        collecting.abort();
        assert!(collecting.await.unwrap_err().is_cancelled());
        assert_eq!(budget.left(), MIB);
    }

    #[tokio::test]
    async fn a_body_of_exactly_the_limit_is_collected_and_a_longer_one_refused() {
        let budget = budget(MIB);
        for most in [0, 1, FREE_BYTES, FREE_BYTES + 1, MIB] {
            let body = collect_of(budget, vec![7; most].into(), most).await.unwrap();
            assert_eq!((body.len(), budget.left()), (most, MIB - charged(most)));
            drop(body);
            let longer = collect_of(budget, vec![7; most + 1].into(), most).await;
            assert!(matches!(longer, Err(BodyError::TooLong(limit)) if limit == most), "{longer:?}");
            assert_eq!(budget.left(), MIB);
        }
    }

    #[tokio::test]
    async fn a_body_of_one_byte_pieces_takes_no_more_than_its_bytes() {
        let budget = budget(MIB);
        let length = 2 * FREE_BYTES;
        let pieces = stream::iter((0..length).map(|_| Ok::<_, Infallible>(Bytes::from_static(b"x"))));
        let body = collect_of(budget, Body::from_stream(pieces), MIB).await.unwrap();
        assert_eq!((body.len(), budget.left()), (length, MIB - FREE_BYTES));
    }

    #[tokio::test]
    async fn the_share_lasts_as_long_as_the_work_and_the_body_can_be_sent_on() {
        let budget = budget(MIB);
        let first = collect_of(budget, vec![7; MIB / 2].into(), MIB).await.unwrap();
        let second = collect_of(budget, Body::new(first), MIB).await.unwrap();
        assert_eq!(second[..], vec![7; MIB / 2]);
        assert_eq!(budget.left(), MIB - charged(MIB / 2));
        let share = second.into_share();
        assert_eq!(budget.left(), MIB - charged(MIB / 2));
        drop(share);
        assert_eq!(budget.left(), MIB);
    }

    #[tokio::test]
    async fn a_response_keeps_its_share_until_its_last_byte_is_gone() {
        let budget = budget(MIB);
        let bytes = shared(vec![7; MIB], Share::of(budget)).unwrap();
        assert_eq!(budget.left(), FREE_BYTES);
        let longer = shared(vec![7; 2 * FREE_BYTES + 1], Share::of(budget));
        assert!(matches!(longer, Err(BodyError::NoRoom)), "{longer:?}");
        let mut body = Whole(bytes);
        assert_eq!(body.size_hint().exact(), Some(MIB as u64));
        let mut sent = Vec::new();
        while let Some(piece) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let piece = piece.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            sent.push(piece);
        }
        drop(body);
        assert_eq!(sent.concat(), vec![7; MIB]);
        sent.truncate(1);
        assert_eq!(budget.left(), FREE_BYTES);
        sent.clear();
        assert_eq!(budget.left(), MIB);
    }

    #[test]
    fn a_share_that_cannot_grow_stays_as_it_was() {
        let budget = budget(MIB);
        let (mut one, mut other) = (Share::of(budget), Share::of(budget));
        one.hold(MIB).unwrap();
        assert!(matches!(other.hold(2 * FREE_BYTES + 1), Err(BodyError::NoRoom)));
        other.hold(2 * FREE_BYTES).unwrap();
        assert_eq!(budget.left(), 0);
        one.hold(0).unwrap();
        other.hold(0).unwrap();
        drop((one, other));
        assert_eq!(budget.left(), MIB);
    }
}
