//! The rest of a request body that was not read, because the request was refused before its end.
//!
//! A client reads the answer only when it has sent its request: if the server closed the connection
//! before that, the client would report a broken connection in place of the reason.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

/// How much of a body is thrown away, and for how long, until the client has to give up.
const BYTES_MAX: u64 = 1 << 30;
const TIME_MAX: Duration = Duration::from_secs(10);

/// The body of a request, which its handler may leave.
pub(super) struct Rest(Option<Shared>);

type Shared = Arc<Mutex<BodyDataStream>>;

impl Rest {
    /// Splits a request into one with the same body for its handler, and what the handler leaves.
    pub(super) fn of(request: Request) -> (Request, Self) {
        if request.body().is_end_stream() {
            return (request, Self(None));
        }
        let (head, body) = request.into_parts();
        let shared = Arc::new(Mutex::new(body.into_data_stream()));
        (Request::from_parts(head, Body::from_stream(Lent(shared.clone()))), Self(Some(shared)))
    }

    /// Throws away what was left.
    pub(super) async fn discard(self) {
        let Some(shared) = self.0 else { return };
        let mut lent = Lent(shared);
        let mut bytes = 0;
        let all = async {
            while let Some(Ok(piece)) = lent.next().await {
                bytes += piece.len() as u64;
                if bytes > BYTES_MAX {
                    return;
                }
            }
        };
        // Whatever is left then closes the connection.
        let _ = tokio::time::timeout(TIME_MAX, all).await;
    }
}

/// The same body, in two hands of which only one uses it at a time.
struct Lent(Shared);

impl Stream for Lent {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if body.is_end_stream() {
            return Poll::Ready(None);
        }
        Pin::new(&mut *body).poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn what_a_handler_leaves_is_read_to_its_end() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let pieces = stream::iter(["a", "b"].map(|text| Ok::<_, std::io::Error>(Bytes::from(text))));
        let end = stream::once(async {
            let _ = sender.send(());
            Ok(Bytes::new())
        });
        let (request, rest) = Rest::of(Request::new(Body::from_stream(pieces.chain(end))));
        let first = request.into_body().into_data_stream().next().await.unwrap().unwrap();
        assert_eq!(first, "a");
        rest.discard().await;
        receiver.await.unwrap();
        let (_, nothing) = Rest::of(Request::new(Body::empty()));
        nothing.discard().await;
    }
}
