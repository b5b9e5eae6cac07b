//! The body of a request, of which it is known how much a handler has left unread.
//!
//! A response to a request that was not read to its end is the last one on its connection. Clients
//! have to know that before they send the next request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A rest of this many bytes has usually arrived with the head, and is skipped.
const SKIPPED_MAX: u64 = 16 << 10;
/// The rest of a body whose length the client does not announce.
const UNKNOWN: u64 = u64::MAX;

/// How many bytes of the body of a request are unread.
#[derive(Clone, Debug)]
pub(crate) struct Unread(Arc<AtomicU64>);

impl Unread {
    /// Tells the client if `response` is the last one on its connection.
    pub(crate) fn tell<B>(&self, response: &mut Response<B>) {
        let is_last = self.0.load(Ordering::Acquire) > SKIPPED_MAX;
        if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RequestBody<B> {
    body: B,
    unread: Unread,
}

impl<B: Body> RequestBody<B> {
    pub(crate) fn new(body: B) -> (Self, Unread) {
        let left = if body.is_end_stream() { 0 } else { body.size_hint().exact().unwrap_or(UNKNOWN) };
        let unread = Unread(Arc::new(AtomicU64::new(left)));
        (Self { body, unread: unread.clone() }, unread)
    }

    fn read(&self, bytes: usize) {
        let left = self.unread.0.load(Ordering::Acquire);
        if self.body.is_end_stream() {
            self.unread.0.store(0, Ordering::Release);
        } else if left != UNKNOWN {
            self.unread.0.store(left.saturating_sub(bytes as u64), Ordering::Release);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            None => self.unread.0.store(0, Ordering::Release),
            Some(Ok(frame)) => self.read(frame.data_ref().map_or(0, Bytes::len)),
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body as AnyBody, to_bytes};
    use futures_util::stream;

    use super::*;

    fn is_last(unread: &Unread) -> bool {
        let mut response = Response::new(());
        unread.tell(&mut response);
        response.headers().contains_key(CONNECTION)
    }

    fn chunked(pieces: usize) -> AnyBody {
        AnyBody::from_stream(stream::iter((0..pieces).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1024])))))
    }

    #[tokio::test]
    async fn a_response_is_the_last_one_if_much_of_the_request_is_unread() {
        for (body, unread_is_last) in [
            (AnyBody::empty(), false),
            (AnyBody::from("short"), false),
            (AnyBody::from(vec![0; 1 << 20]), true),
            (chunked(3), true),
        ] {
            let (body, unread) = RequestBody::new(body);
            assert_eq!(is_last(&unread), unread_is_last);
            to_bytes(AnyBody::new(body), usize::MAX).await.unwrap();
            assert!(!is_last(&unread));
        }
    }

    #[test]
    fn a_connection_that_becomes_another_protocol_is_left_alone() {
        let (_, unread) = RequestBody::new(chunked(1));
        let mut response = Response::builder().status(101).body(()).unwrap();
        unread.tell(&mut response);
        assert!(response.headers().is_empty());
    }
}
