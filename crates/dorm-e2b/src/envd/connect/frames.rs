//! The frames of streams.

use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use bytes::{Buf as _, Bytes, BytesMut};
use dorm_http::bodies::{self, BodyError, Share};
use futures_util::StreamExt as _;
use serde_json::json;

use super::super::fault::{Code, Fault};
use super::{MESSAGE_BYTES_MAX, STREAM, STREAM_ENCODING};

const HEADER: usize = 5;
const COMPRESSED: u8 = 1;
const END: u8 = 2;

/// Encodes a message.
pub(super) fn message(json: &[u8]) -> Bytes {
    encoded(0, json)
}

/// Encodes the end of a stream.
pub(super) fn end(fault: Option<&Fault>) -> Bytes {
    let told = match fault {
        None => json!({}),
        Some(fault) => json!({ "error": { "code": fault.code.as_str(), "message": fault.message } }),
    };
    encoded(END, told.to_string().as_bytes())
}

fn encoded(flags: u8, json: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER + json.len());
    // Messages to clients are much shorter than four gigabytes.
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&[flags]);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(json);
    frame.freeze()
}

/// The frames of a request, as they arrive. Their bytes have a share of the budget for bodies, also
/// those of the last message, which is worked on.
pub(crate) struct Frames {
    body: BodyDataStream,
    decoder: Decoder,
    share: Share,
    /// The length of the message that is worked on.
    in_work: usize,
}

/// How long the client may take to its next message. In the middle of one it must not stall.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    Any,
    Short,
}

impl Frames {
    /// Reads the body of a request with these headers.
    pub(super) fn of(headers: &HeaderMap, body: Body) -> Result<Self, Fault> {
        super::one_message(headers, STREAM, &STREAM_ENCODING)?;
        Ok(Self { body: body.into_data_stream(), decoder: Decoder::default(), share: Share::empty(), in_work: 0 })
    }

    /// The next message, when the last one is no longer needed; `None` at the end of the request.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        self.in_work = 0;
        self.read(Pause::Any).await
    }

    /// The message of a request that has exactly one.
    pub(super) async fn only(&mut self) -> Result<Bytes, Fault> {
        let message = self.read(Pause::Short).await?.ok_or_else(|| Fault::invalid("the request has no message"))?;
        match self.read(Pause::Short).await? {
            None => Ok(message),
            Some(_) => Err(Fault::invalid("the request has more than one message")),
        }
    }

    async fn read(&mut self, pause: Pause) -> Result<Option<Bytes>, Fault> {
        loop {
            let found = self.decoder.next()?;
            self.in_work += found.as_ref().map_or(0, Bytes::len);
            self.share.hold(self.in_work + self.decoder.length())?;
            if let Some(message) = found {
                return Ok(Some(message));
            }
            let piece = if pause == Pause::Any && self.decoder.length() == 0 {
                self.body.next().await.transpose().map_err(BodyError::Broken)?
            } else {
                bodies::next_piece(&mut self.body).await?
            };
            let Some(piece) = piece else { return self.decoder.finish().map(|()| None) };
            self.share.hold(self.in_work + self.decoder.length() + piece.len())?;
            self.decoder.add(&piece);
        }
    }
}

/// Finds messages in the bytes of a stream.
#[derive(Default)]
pub(crate) struct Decoder {
    bytes: BytesMut,
    is_over: bool,
}

impl Decoder {
    /// Adds bytes. At most one message is kept, and what was received together with it.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // Nothing behind the end is read.
        if !self.is_over {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The number of bytes that are kept.
    fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The next message that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some((&[flags, a, b, c, d], _)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        match flags {
            0 => {}
            END => {
                self.is_over = true;
                self.bytes = BytesMut::new();
                return Ok(None);
            }
            flags if flags & COMPRESSED != 0 => {
                return Err(Fault::new(Code::Internal, "a message is compressed, but no compression was negotiated"));
            }
            flags => return Err(Fault::invalid(format!("a frame has the unknown flags {flags}"))),
        }
        if length > MESSAGE_BYTES_MAX {
            let message = format!("a message has {length} bytes: the maximum is {MESSAGE_BYTES_MAX}");
            // Clients report `resource_exhausted` as a rate limit.
            return Err(Fault::invalid(message));
        }
        if self.bytes.len() - HEADER < length {
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        let message = self.bytes.split_to(length).freeze();
        if self.bytes.len() < length {
            // The rest must not keep the memory of a long message.
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        Ok(Some(message))
    }

    /// Checks that the stream does not end inside a frame.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(Fault::invalid("the request ends inside a frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::http::HeaderValue;
    use axum::http::header::CONTENT_TYPE;
    use futures_util::stream;

    use super::*;

    #[test]
    fn frames_are_found_however_they_arrive() {
        let sent = [message(br#"{"a":1}"#), message(b""), end(None)].concat();
        for size in 1..=sent.len() {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for piece in sent.chunks(size) {
                decoder.add(piece);
                while let Some(message) = decoder.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&br#"{"a":1}"#[..], b""], "{size}");
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn a_frame_that_is_cut_compressed_or_too_long_is_refused() {
        let mut cut = Decoder::default();
        cut.add(&message(b"{}")[..6]);
        assert_eq!(cut.next().unwrap(), None);
        assert_eq!(cut.finish().unwrap_err().code, Code::InvalidArgument);
        for (frame, code) in [
            (&[1, 0, 0, 0, 1, 0][..], Code::Internal),
            (&[4, 0, 0, 0, 1, 0], Code::InvalidArgument),
            (&[0, 255, 0, 0, 0], Code::InvalidArgument),
        ] {
            let mut decoder = Decoder::default();
            decoder.add(frame);
            assert_eq!(decoder.next().unwrap_err().code, code, "{frame:?}");
        }
    }

    #[test]
    fn the_rest_behind_a_long_message_does_not_keep_its_memory() {
        let sent = [&message(&vec![b' '; 1 << 20])[..], &message(b"{}")[..3]].concat();
        let mut decoder = Decoder::default();
        decoder.add(&sent);
        drop(decoder.next().unwrap().unwrap());
        assert_eq!(decoder.length(), 3);
        assert!(decoder.bytes.capacity() < 1024, "{}", decoder.bytes.capacity());
    }

    /// A request that sends these pieces, each this long after the one before, and then nothing.
    fn request(pieces: Vec<Bytes>, pause: Duration) -> Frames {
        let sent = stream::iter(pieces).then(move |piece| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(piece)
        });
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(STREAM))]);
        Frames::of(&headers, Body::from_stream(sent.chain(stream::pending()))).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_pause_between_messages_and_not_in_the_middle_of_one() {
        let hour = Duration::from_secs(3600);
        let mut frames = request(vec![message(b"{}"), message(b"[]"), end(None).slice(..4)], hour);
        assert_eq!(frames.next().await.unwrap().unwrap(), "{}");
        assert_eq!(frames.next().await.unwrap().unwrap(), "[]");
        let stalled = frames.next().await.unwrap_err();
        assert_eq!((stalled.code, stalled.message.contains("nothing arrived")), (Code::InvalidArgument, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_one_message_must_end_soon_after_it() {
        let stalled = request(vec![message(b"{}")], Duration::ZERO).only().await.unwrap_err();
        assert!(stalled.message.contains("nothing arrived"), "{}", stalled.message);
        let mut ended = request(vec![message(b"{}")], Duration::ZERO);
        ended.body = Body::from(message(b"{}")).into_data_stream();
        assert_eq!(ended.only().await.unwrap(), "{}");
    }

    #[test]
    fn the_end_of_a_stream_tells_how_the_call_ended() {
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
        let failed = end(Some(&Fault::no_user("eve")));
        let told: serde_json::Value = serde_json::from_slice(&failed[HEADER..]).unwrap();
        assert_eq!(told["error"]["code"], "unauthenticated");
        assert_eq!(failed[0], END);
    }
}
