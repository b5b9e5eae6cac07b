//! Finds the frames in a stream of bytes.

use super::{END_MARK, Frame, HEADER, Kind, MAGIC, PAYLOAD_MAX, Part, TRAILER};
use crate::message::{Nonce, Resync};

/// Decodes frames from bytes as they arrive. At first it searches for the start of the
/// conversation: the agent's end for a `Resync`, the host's end for the `Hello` with its nonce. It
/// searches again when the stream is no longer valid.
#[derive(Debug)]
pub struct Decoder {
    awaited: Awaited,
    place: Place,
    bytes: Vec<u8>,
    start: usize,
}

#[derive(Clone, Copy, Debug)]
enum Awaited {
    Resync,
    Hello(Nonce),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Lost,
    Found,
}

enum Look {
    NeedMore,
    NotHere,
    Broken { skip: usize },
    Whole { kind: Kind, length: usize },
}

impl Decoder {
    /// A decoder for the agent's end.
    pub fn for_agent() -> Self {
        Self::new(Awaited::Resync)
    }

    /// A decoder for the host's end, which has sent `nonce`. Everything before the matching `Hello`
    /// is dropped.
    pub fn for_host(nonce: Nonce) -> Self {
        Self::new(Awaited::Hello(nonce))
    }

    fn new(awaited: Awaited) -> Self {
        Self { awaited, place: Place::Lost, bytes: Vec::new(), start: 0 }
    }

    /// Takes bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > 4 * PAYLOAD_MAX {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the stream is valid at this point: `false` before the first frame, and after a
    /// break.
    pub fn in_step(&self) -> bool {
        self.place == Place::Found
    }

    /// The next frame, if all of it has arrived.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            match self.place {
                Place::Found => match self.look_found() {
                    Look::NeedMore => return None,
                    Look::NotHere => self.place = Place::Lost,
                    Look::Broken { skip } => {
                        self.start += skip;
                        self.place = Place::Lost;
                    }
                    Look::Whole { kind, length } => return Some(self.take(kind, length)),
                },
                Place::Lost => match self.look_lost() {
                    Look::NeedMore => return None,
                    Look::NotHere | Look::Broken { .. } => self.skip_to_magic(),
                    Look::Whole { kind, length } => {
                        self.place = Place::Found;
                        return Some(self.take(kind, length));
                    }
                },
            }
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn take(&mut self, kind: Kind, length: usize) -> Frame {
        let rest = self.rest();
        let frame = Frame {
            kind,
            part: if rest[5] == 0 { Part::Last } else { Part::More },
            channel: number(&rest[8..12]),
            payload: rest[HEADER..HEADER + length].to_vec(),
        };
        let end = self.start + HEADER + length + TRAILER;
        // A request may have a secret, and memory is saved.
        self.bytes[self.start..end].fill(0);
        self.start = end;
        frame
    }

    fn look_found(&self) -> Look {
        let rest = self.rest();
        let (kind, length) = match header(rest) {
            Header::NeedMore => return Look::NeedMore,
            Header::Bad => return Look::NotHere,
            Header::Good { kind, length } => (kind, length),
        };
        let whole = HEADER + length + TRAILER;
        if rest.len() < whole {
            return Look::NeedMore;
        }
        if rest[HEADER + length..whole] != END_MARK {
            return Look::Broken { skip: whole };
        }
        Look::Whole { kind, length }
    }

    /// Never waits for more bytes than the awaited frame itself brings, so that a fake header just
    /// before the frame cannot hide it.
    fn look_lost(&self) -> Look {
        let rest = self.rest();
        let (kind, length) = match header(rest) {
            Header::NeedMore => return Look::NeedMore,
            Header::Bad => return Look::NotHere,
            Header::Good { kind, length } => (kind, length),
        };
        let plausible = match self.awaited {
            Awaited::Resync => kind == Kind::Resync && length == Resync::LENGTH,
            Awaited::Hello(nonce) => {
                if kind != Kind::Hello || length < nonce.0.len() {
                    false
                } else if rest.len() < HEADER + nonce.0.len() {
                    return Look::NeedMore;
                } else {
                    rest[HEADER..HEADER + nonce.0.len()] == nonce.0
                }
            }
        };
        if plausible { self.look_found() } else { Look::NotHere }
    }

    fn skip_to_magic(&mut self) {
        let from = (self.start + 1).min(self.bytes.len());
        let found = self.bytes[from..].iter().position(|byte| *byte == MAGIC[0]);
        self.start = found.map_or(self.bytes.len(), |at| from + at);
    }
}

enum Header {
    NeedMore,
    Bad,
    Good { kind: Kind, length: usize },
}

fn header(rest: &[u8]) -> Header {
    let known = rest.len().min(MAGIC.len());
    if rest[..known] != MAGIC[..known] {
        return Header::Bad;
    }
    if rest.len() < HEADER {
        return Header::NeedMore;
    }
    let length = usize::try_from(number(&rest[12..16])).unwrap_or(usize::MAX);
    match Kind::from_byte(rest[4]) {
        Some(kind) if length <= PAYLOAD_MAX && rest[5] <= 1 => Header::Good { kind, length },
        _ => Header::Bad,
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}
