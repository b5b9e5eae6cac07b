//! The frames of streams.

use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use bytes::{Buf as _, Bytes, BytesMut};
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

/// The frames of a request, as they arrive.
pub(crate) struct Frames {
    body: BodyDataStream,
    decoder: Decoder,
}

impl Frames {
    /// Reads the body of a request with these headers.
    pub(super) fn of(headers: &HeaderMap, body: Body) -> Result<Self, Fault> {
        super::one_message(headers, STREAM, &STREAM_ENCODING)?;
        Ok(Self { body: body.into_data_stream(), decoder: Decoder::default() })
    }

    /// The next message; `None` at the end of the request.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.decoder.add(&bytes),
                Some(Err(error)) => return Err(Fault::invalid(format!("cannot read the request body: {error}"))),
                None => return self.decoder.finish().map(|()| None),
            }
        }
    }

    /// The message of a request that has exactly one.
    pub(super) async fn only(&mut self) -> Result<Bytes, Fault> {
        let message = self.next().await?.ok_or_else(|| Fault::invalid("the request has no message"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(Fault::invalid("the request has more than one message")),
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

    /// The next message that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some((&[flags, a, b, c, d], _)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        match flags {
            0 => {}
            END => {
                self.is_over = true;
                self.bytes.clear();
                return Ok(None);
            }
            flags if flags & COMPRESSED != 0 => {
                return Err(Fault::new(Code::Internal, "a message is compressed, and no compression was agreed"));
            }
            flags => return Err(Fault::invalid(format!("a frame has the unknown flags {flags}"))),
        }
        if length > MESSAGE_BYTES_MAX {
            let message = format!("a message has {length} bytes: the most are {MESSAGE_BYTES_MAX}");
            // Clients report `resource_exhausted` as a rate limit.
            return Err(Fault::invalid(message));
        }
        if self.bytes.len() - HEADER < length {
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        Ok(Some(self.bytes.split_to(length).freeze()))
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
    fn the_end_of_a_stream_tells_how_the_call_ended() {
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
        let failed = end(Some(&Fault::no_user("eve")));
        let told: serde_json::Value = serde_json::from_slice(&failed[HEADER..]).unwrap();
        assert_eq!(told["error"]["code"], "unauthenticated");
        assert_eq!(failed[0], END);
    }
}
