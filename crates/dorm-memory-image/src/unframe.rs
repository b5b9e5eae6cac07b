//! The header and the frames of `checkpoint.img`.
//!
//! ```text
//! magic (8)  length (8)  text of that length  digest (32)  { length (4)  bytes }…
//! ```
//!
//! Lengths are big-endian. Most frames contain a single byte, so the content is about a quarter of
//! the size.

use std::collections::BTreeMap;
use std::io::Read;

use crate::budget::Budget;
use crate::error::MemoryImageError;

const FILE: &str = "checkpoint.img";
const MAGIC: &[u8; 8] = b"gVisorSF";
/// The digest of the header. It uses no key and therefore proves nothing.
const DIGEST_BYTES: usize = 32;
const HEAD_MAX: u64 = 1 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// Returns the content of the frames of an image of `length` bytes.
pub(crate) fn unframe(input: &mut impl Read, length: u64, budget: &Budget) -> Result<Vec<u8>, MemoryImageError> {
    budget.take_memory(length / 4)?;
    let mut content = Vec::with_capacity(usize::try_from(length / 4).unwrap_or(0));
    frames(input, |now| {
        let more = (content.len() + now.len()).saturating_sub(content.capacity());
        if more > 0 {
            // A vector grows to twice its length.
            budget.take_memory(content.capacity().max(more) as u64)?;
        }
        content.extend_from_slice(now);
        Ok(())
    })?;
    Ok(content)
}

/// Checks that the image ends at the end of a frame. Discards the content of the frames.
pub(crate) fn ends_whole(input: &mut impl Read) -> Result<(), MemoryImageError> {
    frames(input, |_| Ok(()))
}

/// Passes the content of the frames to `take`, piece by piece.
fn frames(
    input: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), MemoryImageError>,
) -> Result<(), MemoryImageError> {
    read_head(input)?;
    let mut length = 0;
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let mut filled = 0;
    let mut left_of_frame = 0_usize;
    loop {
        let read = match buffer.get_mut(filled..) {
            Some(free) => read_some(input, free)?,
            None => 0,
        };
        filled += read;
        let mut rest = buffer.get(..filled).unwrap_or_default();
        loop {
            let (now, later) = rest.split_at(left_of_frame.min(rest.len()));
            take(now)?;
            length += now.len();
            left_of_frame -= now.len();
            rest = later;
            let Some((frame, later)) = rest.split_first_chunk::<4>() else { break };
            left_of_frame = u32::from_be_bytes(*frame) as usize;
            rest = later;
        }
        let kept = rest.len();
        if read == 0 {
            let whole = kept == 0 && left_of_frame == 0;
            return if whole { Ok(()) } else { Err(damaged("it ends in the middle of a frame", length)) };
        }
        buffer.copy_within(filled - kept..filled, 0);
        filled = kept;
    }
}

fn read_some(input: &mut impl Read, free: &mut [u8]) -> Result<usize, MemoryImageError> {
    loop {
        match input.read(free) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read.map_err(MemoryImageError::read(FILE)),
        }
    }
}

fn read_head(input: &mut impl Read) -> Result<(), MemoryImageError> {
    let mut magic = [0; 8];
    let mut length = [0; 8];
    input.read_exact(&mut magic).map_err(MemoryImageError::read(FILE))?;
    input.read_exact(&mut length).map_err(MemoryImageError::read(FILE))?;
    if &magic != MAGIC {
        return Err(MemoryImageError::different("checkpoint.img has an unknown file header"));
    }
    let length = u64::from_be_bytes(length);
    if length > HEAD_MAX {
        return Err(damaged("its header is too long", 0));
    }
    let mut text = Vec::new();
    input.take(length).read_to_end(&mut text).map_err(MemoryImageError::read(FILE))?;
    let mut digest = [0; DIGEST_BYTES];
    input.read_exact(&mut digest).map_err(MemoryImageError::read(FILE))?;
    let Ok(head) = serde_json::from_slice::<BTreeMap<String, String>>(&text) else {
        return Err(damaged("its header cannot be parsed", 0));
    };
    match head.get("compression").map(String::as_str) {
        Some("none") => Ok(()),
        other => Err(MemoryImageError::different(format!("checkpoint.img has the compression {other:?}"))),
    }
}

fn damaged(what: &'static str, at: usize) -> MemoryImageError {
    MemoryImageError::Damaged { file: FILE, what, at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::FilesLimits;

    fn image(frames: &[u8]) -> Vec<u8> {
        let text = br#"{"compression":"none"}"#;
        let mut image = MAGIC.to_vec();
        image.extend((text.len() as u64).to_be_bytes());
        image.extend(text);
        image.extend([7; DIGEST_BYTES]);
        image.extend(frames);
        image
    }

    fn unframe_all(input: &mut impl Read) -> Result<Vec<u8>, MemoryImageError> {
        unframe(input, 0, &Budget::new(FilesLimits::default(), 0))
    }

    /// Returns one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let length = into.len().min(1);
            self.0.read(&mut into[..length])
        }
    }

    #[test]
    fn frames_are_joined_however_the_bytes_arrive() {
        let image = image(b"\0\0\0\x01a\0\0\0\0\0\0\0\x03bcd");
        assert_eq!(unframe_all(&mut image.as_slice()).unwrap(), b"abcd");
        assert_eq!(unframe_all(&mut Slow(&image)).unwrap(), b"abcd");
    }

    #[test]
    fn a_frame_longer_than_the_buffer_is_whole() {
        let long = vec![9; BUFFER_BYTES * 2 + 5];
        let mut frames = u32::try_from(long.len()).unwrap().to_be_bytes().to_vec();
        frames.extend(&long);
        frames.extend(b"\0\0\0\x01x");
        let content = unframe_all(&mut image(&frames).as_slice()).unwrap();
        assert_eq!(content.len(), long.len() + 1);
        assert_eq!(content.last(), Some(&b'x'));
    }

    #[test]
    fn an_image_that_ends_early_is_an_error_wherever_it_ends() {
        let whole = image(b"\0\0\0\x02ab");
        for length in 0..whole.len() {
            let cut = whole.get(..length).unwrap();
            let ends_between_frames = length == whole.len() - 6;
            assert_eq!(unframe_all(&mut &*cut).is_ok(), ends_between_frames, "{length}");
        }
    }

    #[test]
    fn another_format_is_named() {
        let mut other = image(b"");
        other[0] ^= 1;
        let error = unframe_all(&mut other.as_slice()).unwrap_err();
        assert!(error.to_string().contains("this runsc build"), "{error}");
    }
}
