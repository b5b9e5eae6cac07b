//! The body of a response with the contents of a file.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use dorm_service::InUse;
use futures_util::Stream;

/// The contents of a file. Ends after the announced length if the file grows meanwhile; fails if it
/// shrinks.
struct Contents<S> {
    pieces: S,
    left: u64,
    _in_use: Option<InUse>,
}

/// Returns a body with the first `length` bytes of `pieces`, which is the length that the response
/// announces; `u64::MAX` if it announces none. The sandbox is in use until the body was sent.
pub fn contents<S, E>(pieces: S, length: u64, in_use: InUse) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    Body::from_stream(Contents { pieces, left: length, _in_use: Some(in_use) })
}

impl<S, E> Stream for Contents<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = match ready!(Pin::new(&mut this.pieces).poll_next(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            Some(Ok(piece)) => piece,
        };
        piece.truncate(usize::try_from(this.left).unwrap_or(usize::MAX));
        this.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{TryStreamExt as _, stream};

    use super::*;

    async fn sent(pieces: &[Result<&'static str, io::ErrorKind>], left: u64) -> io::Result<Vec<u8>> {
        let pieces = pieces.iter().map(|piece| piece.map(Bytes::from).map_err(io::Error::from));
        let pieces: Vec<io::Result<Bytes>> = pieces.collect();
        let contents = Contents { pieces: stream::iter(pieces), left, _in_use: None };
        Ok(contents.try_collect::<Vec<_>>().await?.concat())
    }

    #[tokio::test]
    async fn contents_end_after_the_announced_length() {
        assert_eq!(sent(&[Ok("ab"), Ok("cd")], 3).await.unwrap(), b"abc");
        assert_eq!(sent(&[Ok("ab"), Ok("cd")], u64::MAX).await.unwrap(), b"abcd");
        assert_eq!(sent(&[Ok("ab"), Err(io::ErrorKind::BrokenPipe)], 2).await.unwrap(), b"ab");
        assert!(sent(&[Ok("ab"), Err(io::ErrorKind::BrokenPipe)], 3).await.is_err());
    }
}
