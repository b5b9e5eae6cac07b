//! Frames: how messages and bytes lie on the stream, and how one end finds its place again after the other died.
//!
//! A frame is a header of 16 bytes, at most [`PAYLOAD_MAX`] bytes, and a trailer of 4. All numbers are little-endian:
//!
//! ```text
//! magic u32 │ kind u8 │ more u8 │ 0 u16 │ channel u32 │ length u32 │ payload │ trailer u32
//! ```
//!
//! After a cut, the receiver may be in the middle of a frame whose rest never comes. The new sender cannot know, so
//! [`resync`] puts as many zeros first as the longest frame has bytes: they complete the cut frame, whose trailer is
//! then wrong (it has no zero byte), and the `Resync` behind them is read as what it is.

mod decoder;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;

use crate::message::{Nonce, Resync};

/// The most payload bytes in one frame.
pub const PAYLOAD_MAX: usize = 32 * 1024;

/// The length of a frame whose payload is as long as can be.
pub const FRAME_MAX: usize = HEADER + PAYLOAD_MAX + TRAILER;

pub(crate) const HEADER: usize = 16;
pub(crate) const TRAILER: usize = 4;
pub(crate) const MAGIC: [u8; 4] = [0xd0, 0x9d, 0x4d, 0xa1];
pub(crate) const END_MARK: [u8; 4] = [0x1a, 0xe5, 0x0d, 0xd1];

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Host: forget all channels and begin anew. Payload: [`Resync`].
    Resync = 1,
    /// Agent: the answer to a resync. Payload: the nonce, then [`crate::Hello`] as JSON.
    Hello = 2,
    /// Host: opens its channel. Payload: [`crate::Request`] as JSON.
    Request = 3,
    /// Agent: the one answer to a request. Payload: `Result<`[`crate::Answer`]`, `[`crate::Failure`]`>` as JSON.
    Answer = 4,
    /// Either: bytes. Needs credit.
    Data = 5,
    /// Agent: one fact of a stream. Payload: [`crate::Event`] as JSON. Needs credit.
    Event = 6,
    /// Either: the other side may send that many more bytes. Payload: a `u32`.
    Credit = 7,
    /// Either: nothing more comes from this side. Payload: [`crate::End`] as JSON.
    End = 8,
    /// Host: the channel is given up; the agent stops what it does for it.
    Cancel = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Resync,
            2 => Self::Hello,
            3 => Self::Request,
            4 => Self::Answer,
            5 => Self::Data,
            6 => Self::Event,
            7 => Self::Credit,
            8 => Self::End,
            9 => Self::Cancel,
            _ => return None,
        })
    }
}

/// Whether a message goes on in the next frame of the same channel and kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It does.
    More,
    /// This frame completes it.
    Last,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Whether it completes its message.
    pub part: Part,
    /// Its channel; 0 for `Resync` and `Hello`.
    pub channel: u32,
    /// At most [`PAYLOAD_MAX`] bytes.
    pub payload: Vec<u8>,
}

/// Appends a message of any length to `out`, in as many frames as it needs.
pub fn encode(out: &mut Vec<u8>, kind: Kind, channel: u32, message: &[u8]) {
    let mut rest = message;
    loop {
        let (payload, behind) = rest.split_at(rest.len().min(PAYLOAD_MAX));
        let part = if behind.is_empty() { Part::Last } else { Part::More };
        encode_one(out, kind, part, channel, payload);
        rest = behind;
        if rest.is_empty() {
            return;
        }
    }
}

fn encode_one(out: &mut Vec<u8>, kind: Kind, part: Part, channel: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.reserve(HEADER + payload.len() + TRAILER);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind as u8, u8::from(part == Part::More), 0, 0]);
    out.extend_from_slice(&channel.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&END_MARK);
}

/// The bytes a new host sends first: zeros that end whatever frame was cut, then the `Resync` frame.
pub fn resync(resync: &Resync) -> Vec<u8> {
    let mut out = vec![0; FRAME_MAX];
    encode(&mut out, Kind::Resync, 0, &resync.to_bytes());
    out
}

/// The `Hello` frame that answers a resync.
pub fn hello(nonce: Nonce, hello: &[u8]) -> Vec<u8> {
    let mut payload = nonce.0.to_vec();
    payload.extend_from_slice(hello);
    let mut out = Vec::new();
    encode(&mut out, Kind::Hello, 0, &payload);
    out
}

/// Puts messages that came in several frames together. One per channel.
#[derive(Debug)]
pub struct Assembler {
    parts: Vec<u8>,
    most: usize,
}

impl Assembler {
    /// One for messages of at most so many bytes.
    pub fn within(most: usize) -> Self {
        Self { parts: Vec::new(), most }
    }

    /// Whether it waits for the first part of a message.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes the next frame's payload. Answers the whole message with its last part.
    ///
    /// # Errors
    /// When the message grows beyond what it may be.
    pub fn push(&mut self, part: Part, payload: Vec<u8>) -> Result<Option<Vec<u8>>, TooLong> {
        if self.parts.len() + payload.len() > self.most {
            self.parts = Vec::new();
            return Err(TooLong(self.most));
        }
        match part {
            Part::Last if self.parts.is_empty() => Ok(Some(payload)),
            Part::Last => {
                self.parts.extend_from_slice(&payload);
                Ok(Some(std::mem::take(&mut self.parts)))
            }
            Part::More => {
                self.parts.extend_from_slice(&payload);
                Ok(None)
            }
        }
    }
}

/// A message is longer than both ends agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of more than {0} bytes")]
pub struct TooLong(pub usize);
