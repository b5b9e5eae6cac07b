//! Frames: the encoding of messages on the stream, and resynchronisation after one end has died.
//!
//! A frame is a header of 16 bytes, at most [`PAYLOAD_MAX`] bytes, and a trailer of 4. All numbers
//! are little-endian:
//!
//! ```text
//! magic u32 │ kind u8 │ more u8 │ 0 u16 │ channel u32 │ length u32 │ payload │ trailer u32
//! ```
//!
//! After a cut, the receiver may be in the middle of a frame whose rest never comes. The new sender
//! cannot know, so [`resync`] first sends as many zeros as the longest frame has bytes. They
//! complete the cut frame, whose trailer is then wrong (a valid trailer has no zero byte), and the
//! receiver recognises the `Resync` frame that follows.

mod decoder;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;

use crate::message::{Nonce, Resync};

/// The largest payload of a frame, in bytes.
pub const PAYLOAD_MAX: usize = 32 * 1024;

/// The length of a frame with the largest payload, in bytes.
pub const FRAME_MAX: usize = HEADER + PAYLOAD_MAX + TRAILER;

pub(crate) const HEADER: usize = 16;
pub(crate) const TRAILER: usize = 4;
pub(crate) const MAGIC: [u8; 4] = [0xd0, 0x9d, 0x4d, 0xa1];
pub(crate) const END_MARK: [u8; 4] = [0x1a, 0xe5, 0x0d, 0xd1];

/// The kind of a frame, with its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Host: drop all channels and start again. Payload: [`Resync`].
    Resync = 1,
    /// Agent: the answer to a resync. Payload: the nonce, then [`crate::Hello`] as JSON.
    Hello = 2,
    /// Host: opens its channel. Payload: [`crate::Request`] as JSON.
    Request = 3,
    /// Agent: the one answer to a request. Payload: `Result<`[`crate::Answer`]`,
    /// `[`crate::Failure`]`>` as JSON.
    Answer = 4,
    /// Either: raw bytes. Needs credit.
    Data = 5,
    /// Agent: one item of a stream. Payload: [`crate::Event`] as JSON. Needs credit.
    Event = 6,
    /// Either: the other side may send this many more bytes. Payload: a `u32`.
    Credit = 7,
    /// Either: this side sends nothing more on the channel. Payload: [`crate::End`] as JSON.
    End = 8,
    /// Host: closes the channel; the agent stops its work for it.
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

/// Whether the message continues in the next frame of the same channel and kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The message continues.
    More,
    /// This frame completes it.
    Last,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its kind.
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

/// The bytes that a new host sends first: zeros that complete a frame that was cut, then the
/// `Resync` frame.
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

/// Joins the frames of a message. Each channel has its own assembler.
#[derive(Debug)]
pub struct Assembler {
    parts: Vec<u8>,
    most: usize,
}

impl Assembler {
    /// An assembler for messages of at most `most` bytes.
    pub fn within(most: usize) -> Self {
        Self { parts: Vec::new(), most }
    }

    /// Whether no message is partly received.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes the payload of the next frame. Returns the whole message with its last part.
    ///
    /// # Errors
    /// If the message becomes longer than the limit.
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

/// A message is longer than its limit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of more than {0} bytes")]
pub struct TooLong(pub usize);
