//! Compressed request bodies. They are decompressed as they arrive, so memory use does not depend
//! on how much they hold.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures_util::{Stream, StreamExt as _, stream};

/// How much is decompressed at once. It becomes at most about a thousand times as much.
const INPUT_BYTES: usize = 1 << 10;

struct State<S> {
    body: S,
    input: Bytes,
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
}

/// Decompresses a body.
pub(super) fn decompressed<S>(body: S) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    S: Stream<Item = io::Result<Bytes>> + Send + Unpin,
{
    let decoder = Some(MultiGzDecoder::new(Vec::new()));
    stream::try_unfold(State { body, input: Bytes::new(), decoder }, next)
}

async fn next<S>(mut state: State<S>) -> io::Result<Option<(Bytes, State<S>)>>
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    loop {
        let Some(decoder) = &mut state.decoder else { return Ok(None) };
        if state.input.is_empty() {
            match state.body.next().await {
                Some(input) => state.input = input?,
                None => {
                    let Some(decoder) = state.decoder.take() else { return Ok(None) };
                    let rest = decoder.finish().map_err(invalid)?;
                    return Ok((!rest.is_empty()).then(|| (rest.into(), state)));
                }
            }
        }
        let input = state.input.split_to(state.input.len().min(INPUT_BYTES));
        decoder.write_all(&input).map_err(invalid)?;
        let output = std::mem::take(decoder.get_mut());
        if !output.is_empty() {
            return Ok(Some((output.into(), state)));
        }
    }
}

fn invalid(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the body is not valid gzip: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn all(pieces: Vec<Bytes>) -> io::Result<(Vec<u8>, usize)> {
        let body = stream::iter(pieces.into_iter().map(Ok));
        let (mut found, mut largest) = (Vec::new(), 0);
        let mut output = std::pin::pin!(decompressed(body));
        while let Some(piece) = output.next().await {
            let piece = piece?;
            largest = largest.max(piece.len());
            found.extend_from_slice(&piece);
        }
        Ok((found, largest))
    }

    #[tokio::test]
    async fn a_body_is_decompressed_in_pieces() {
        let zeros = vec![0; 64 << 20];
        let (found, largest) = all(vec![compressed(&zeros).into()]).await.unwrap();
        assert!(found == zeros && largest <= 4 << 20, "{largest}");
        let text = compressed(b"hello");
        let bytes = text.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
        assert_eq!(all(bytes).await.unwrap().0, b"hello");
    }

    #[tokio::test]
    async fn a_body_that_is_cut_or_is_not_compressed_is_an_error() {
        let mut text = compressed(b"hello");
        text.truncate(text.len() - 4);
        assert!(all(vec![text.into()]).await.is_err());
        assert!(all(vec![Bytes::from_static(b"hello, not gzip")]).await.is_err());
    }
}
