//! Forms with files: bodies of the type `multipart/form-data`, whose parts are read as they arrive.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use multer::{Field, Multipart};

use super::super::fault::Fault;

/// The name of the parts that are files.
const PART: &str = "file";
/// How many bytes may be read until the headers of a part are complete.
const HEADERS_BYTES_MAX: u64 = 1 << 20;
/// How many bytes are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// A form whose files are read one after another.
pub(crate) struct Form {
    parts: Multipart<'static>,
    budget: Arc<AtomicU64>,
}

impl Form {
    /// Reads a body with this content type.
    pub(crate) fn new<S>(content_type: &str, body: S) -> Result<Self, Fault>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
    {
        let boundary = multer::parse_boundary(content_type).map_err(|error| invalid(&error))?;
        let budget = Arc::new(AtomicU64::new(0));
        let paced = Paced { body, rest: Bytes::new(), budget: budget.clone(), turn: Turn::Pass };
        Ok(Self { parts: Multipart::new(paced, boundary), budget })
    }

    /// The next file, with its name; `None` at the end. Parts of other names are skipped.
    pub(crate) async fn next(&mut self) -> Result<Option<(Option<String>, Field<'static>)>, Fault> {
        loop {
            self.budget.store(HEADERS_BYTES_MAX, Ordering::Relaxed);
            let Some(mut part) = self.parts.next_field().await.map_err(|error| invalid(&error))? else {
                return Ok(None);
            };
            self.budget.store(u64::MAX, Ordering::Relaxed);
            if part.name() == Some(PART) {
                return Ok(Some((part.file_name().map(str::to_owned), part)));
            }
            while part.chunk().await.map_err(|error| invalid(&error))?.is_some() {}
        }
    }
}

fn invalid(error: &multer::Error) -> Fault {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    Fault::invalid(format!("cannot read the form: {error}{cause}"))
}

/// A body in small pieces, of which only one is read at a time: the parser of forms would keep all
/// that it can get. It also would keep headers of any length.
struct Paced<S> {
    body: S,
    rest: Bytes,
    budget: Arc<AtomicU64>,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Pass,
    Pause,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Stream for Paced<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.turn == Turn::Pause {
            this.turn = Turn::Pass;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.rest.is_empty() {
            this.rest = match ready!(Pin::new(&mut this.body).poll_next(context)).transpose()? {
                Some(bytes) => bytes,
                None => return Poll::Ready(None),
            };
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        let left = this.budget.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(piece.len() as u64) else {
            let message = format!("the headers of a part are longer than {HEADERS_BYTES_MAX} bytes");
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, message))));
        };
        // Nothing else changes it while the body is read.
        this.budget.store(left, Ordering::Relaxed);
        this.turn = Turn::Pause;
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=XX";

    async fn read(body: &[u8], size: usize) -> Result<Vec<(Option<String>, Vec<u8>)>, Fault> {
        let pieces: Vec<_> = body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut form = Form::new(TYPE, stream::iter(pieces))?;
        let mut files = Vec::new();
        while let Some((name, mut part)) = form.next().await? {
            let mut content = Vec::new();
            while let Some(piece) = part.chunk().await.map_err(|error| invalid(&error))? {
                content.extend_from_slice(&piece);
            }
            files.push((name, content));
        }
        Ok(files)
    }

    #[tokio::test]
    async fn names_of_files_keep_their_directories() {
        let body = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/b/ü c.txt\"\r\n\r\n\
                    one\r\n--X\r\n--XX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n\
                    --XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"rel/ative\"\r\n\
                    Content-Type: text/plain\r\n\r\n\r\n--XX--\r\n";
        for size in [1, 3, 7, 4096] {
            let files = read(body.as_bytes(), size).await.unwrap();
            let expected =
                [(Some("/a/b/ü c.txt".to_owned()), b"one\r\n--X".to_vec()), (Some("rel/ative".to_owned()), Vec::new())];
            assert_eq!(files, expected, "{size}");
        }
    }

    #[tokio::test]
    async fn a_form_that_is_cut_or_has_endless_headers_is_refused() {
        assert!(Form::new("multipart/form-data", stream::empty()).is_err());
        let cut = b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\none";
        assert!(read(cut, 9).await.is_err());
        assert!(read(b"", 9).await.is_err());
        let endless = [b"--XX\r\nA: ".to_vec(), vec![b'x'; 3 << 20]].concat();
        let refused = read(&endless, 64 << 10).await.unwrap_err();
        assert!(refused.message.contains("headers"), "{}", refused.message);
    }
}
