//! The last bytes of one output stream, addressed by their offset since the process's start.

use std::collections::VecDeque;

/// Keeps at most `limit` bytes.
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    start: u64,
    limit: usize,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), start: 0, limit }
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes; the oldest are dropped.
    pub(super) fn append(&mut self, new: &[u8]) {
        let end = self.end() + new.len() as u64;
        let keep = &new[new.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + keep.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(keep);
        self.start = end - self.bytes.len() as u64;
    }

    /// Returns up to `most` bytes from an offset that is kept.
    pub(super) fn copy(&self, from: u64, most: usize) -> Vec<u8> {
        let at = usize::try_from(from.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.range(at..(at + most).min(self.bytes.len())).copied().collect()
    }

    /// Drops everything and keeps nothing from now on; offsets continue.
    pub(super) fn discard(&mut self) {
        self.start = self.end();
        self.bytes = VecDeque::new();
        self.limit = 0;
    }

    /// Frees memory that is not needed.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn the_last_bytes_are_kept_and_places_are_absolute() {
        let mut ring = Ring::new(4);
        ring.append(b"ab");
        ring.append(b"cde");
        assert_eq!((ring.start(), ring.end()), (1, 5));
        assert_eq!(ring.copy(2, 2), b"cd");
        ring.append(b"0123456789");
        assert_eq!((ring.start(), ring.end()), (11, 15));
        assert_eq!(ring.copy(11, 100), b"6789");
        ring.discard();
        ring.append(b"more");
        assert_eq!((ring.start(), ring.end(), ring.kept()), (19, 19, 0));
    }
}
