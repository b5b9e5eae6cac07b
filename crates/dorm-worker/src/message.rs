//! The messages of a worker: frames with a kind and a length, and the fields in them. All lengths
//! are limited, and the reader checks each of them.
//!
//! ```text
//! length (4, little-endian)  kind (1)  that many bytes
//! ```

use std::io::{self, BufRead as _, BufReader, Read, Write};

/// The maximum length of a frame: an entry with all its extended attributes.
pub const FRAME_MAX: u32 = 4 << 20;
const BUFFER: usize = 256 << 10;
/// How much of a worker's text is shown.
const TEXT_MAX: usize = 512;

/// The worker's end.
pub struct Sender<W: Write>(io::BufWriter<W>);

impl<W: Write> Sender<W> {
    /// Creates a sender that writes frames to `to`.
    pub fn new(to: W) -> Self {
        Self(io::BufWriter::with_capacity(64 << 10, to))
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// When the reader is gone, or the frame is too long.
    pub fn send(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        self.send_parts(kind, &[content])
    }

    /// Writes a frame whose content is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_parts(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
        let length = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>());
        let length = length.ok().filter(|length| *length <= FRAME_MAX);
        let length = length.ok_or_else(|| invalid("a message is too long"))?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(&[kind])?;
        parts.iter().try_for_each(|part| self.0.write_all(part))
    }

    /// Flushes all frames and returns the underlying writer.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn into_inner(self) -> io::Result<W> {
        self.0.into_inner().map_err(io::IntoInnerError::into_error)
    }

    /// Flushes what has been written.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The reader's end.
pub struct Frames<R: Read> {
    from: BufReader<R>,
    /// The rest of the current frame.
    left: usize,
}

impl<R: Read> Frames<R> {
    /// Creates a reader of the frames in `from`.
    pub fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(BUFFER, from), left: 0 }
    }

    /// Returns the kind and the length of the next frame, after skipping the rest of the previous
    /// one; `None` at the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when the frame is invalid.
    pub fn next_frame(&mut self) -> io::Result<Option<(u8, usize)>> {
        while self.left > 0 {
            let skipped = self.from.fill_buf()?.len().min(self.left);
            if skipped == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.from.consume(skipped);
            self.left -= skipped;
        }
        if self.from.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut head = [0; 5];
        self.from.read_exact(&mut head)?;
        let [a, b, c, d, kind] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        if length > FRAME_MAX {
            return Err(invalid("it is longer than the maximum message length"));
        }
        self.left = length as usize;
        Ok(Some((kind, self.left)))
    }

    /// Returns the rest of the frame.
    ///
    /// # Errors
    /// When it is truncated.
    pub fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.left];
        self.from.read_exact(&mut content)?;
        self.left = 0;
        Ok(content)
    }

    /// Reads some of the rest of the frame; nothing at its end.
    ///
    /// # Errors
    /// When it is truncated.
    pub fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let want = into.len().min(self.left);
        let Some(into) = into.get_mut(..want).filter(|into| !into.is_empty()) else { return Ok(0) };
        let read = self.from.read(into)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

/// The fields of a message, written and read in the same order.
#[derive(Clone, Default, Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    at: usize,
}

impl Fields {
    /// Returns the fields in the content of a frame.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the content of a frame with these fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }

    /// Adds a number.
    pub fn put(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Adds a byte string.
    pub fn put_bytes(&mut self, text: &[u8]) {
        self.put(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    /// Returns the next number.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when there is none.
    pub fn number(&mut self) -> io::Result<u64> {
        let number = self.take(8)?.try_into().map(u64::from_le_bytes);
        number.map_err(|_| invalid("it ends in the middle of a number"))
    }

    /// Returns the next number, converted to `T`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when there is none, or it is too large.
    pub fn small<T: TryFrom<u64>>(&mut self) -> io::Result<T> {
        T::try_from(self.number()?).map_err(|_| invalid("it contains a number that is too large"))
    }

    /// Returns the next byte string.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when there is none.
    pub fn text(&mut self) -> io::Result<Vec<u8>> {
        let length = self.small()?;
        self.take(length).map(<[u8]>::to_vec)
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when bytes remain.
    pub fn end(&self) -> io::Result<()> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(invalid("it has extra bytes at its end")) }
    }

    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| invalid("it ends in the middle of a field"))?;
        self.at += length;
        Ok(taken)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns a worker's text in a form that is safe to show: short, and without terminal control
/// characters.
pub fn legible(text: &[u8]) -> String {
    let text = text.get(..TEXT_MAX).unwrap_or(text);
    let plain = |one: char| {
        !one.is_control() && !matches!(one, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::new();
    for one in String::from_utf8_lossy(text).trim().chars() {
        if plain(one) {
            shown.push(one);
        } else {
            shown.extend(one.escape_unicode());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let mut sent = Vec::new();
        let mut sender = Sender::new(&mut sent);
        let mut fields = Fields::default();
        fields.put(7);
        fields.put_bytes(b"text");
        sender.send(1, fields.as_bytes()).unwrap();
        sender.send(2, &[9; 300]).unwrap();
        sender.send(3, b"").unwrap();
        sender.flush().unwrap();
        drop(sender);
        let mut frames = Frames::new(&sent[..]);
        assert_eq!(frames.next_frame().unwrap(), Some((1, 20)));
        let mut fields = Fields::of(frames.content().unwrap());
        assert_eq!((fields.number().unwrap(), fields.text().unwrap()), (7, b"text".to_vec()));
        fields.end().unwrap();
        assert_eq!(frames.next_frame().unwrap(), Some((2, 300)));
        // The unread rest of a frame is skipped.
        assert_eq!(frames.read_some(&mut [0; 10]).unwrap(), 10);
        assert_eq!(frames.next_frame().unwrap(), Some((3, 0)));
        assert_eq!(frames.next_frame().unwrap(), None);
    }

    #[test]
    fn frames_that_cannot_be_are_errors_before_anything_is_allocated() {
        let mut too_long = Frames::new(&[0xff, 0xff, 0xff, 0xff, 1][..]);
        assert_eq!(too_long.next_frame().unwrap_err().kind(), io::ErrorKind::InvalidData);
        for cut in [&[1, 0][..], &[3, 0, 0, 0, 1, 9]] {
            let mut frames = Frames::new(cut);
            let read = frames.next_frame().and_then(|_| frames.content());
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let mut fields = Fields::default();
        fields.put(u64::MAX);
        assert!(Fields::of(fields.as_bytes().to_vec()).text().is_err());
        assert!(Fields::of(fields.as_bytes().to_vec()).small::<u32>().is_err());
        assert!(Fields::of(vec![1, 2]).number().is_err());
    }

    #[test]
    fn texts_are_short_and_steer_no_terminal() {
        assert_eq!(legible(b" a\x1b[31m\n"), "a\\u{1b}[31m");
        assert_eq!(legible("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(legible(&[b'a'; 9999]).len(), TEXT_MAX);
    }
}
