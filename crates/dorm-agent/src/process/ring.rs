//! The last bytes of one output stream, addressed by their offset since the process's start, and
//! when they were read.

use std::collections::VecDeque;

/// How many marks are kept. If there are more, older ones are joined in pairs.
const MARKS_MAX: usize = 8192;

/// Keeps at most `limit` bytes.
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    start: u64,
    limit: usize,
    /// Every kept byte belongs to the first mark that ends behind it.
    marks: VecDeque<Mark>,
}

/// Bytes that were read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) end: u64,
    pub(super) stamp: Stamp,
}

/// When bytes were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// Its place among the marks of both streams of a process.
    pub(super) order: u64,
    pub(super) unix_ms: u64,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), start: 0, limit, marks: VecDeque::new() }
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

    /// Appends bytes; the oldest are dropped. The order of stamps must not fall.
    pub(super) fn append(&mut self, new: &[u8], stamp: Stamp) {
        let end = self.end() + new.len() as u64;
        let keep = &new[new.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + keep.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(keep);
        self.start = end - self.bytes.len() as u64;
        match self.marks.back_mut() {
            Some(last) if last.stamp == stamp => last.end = end,
            _ => self.marks.push_back(Mark { end, stamp }),
        }
        while self.marks.front().is_some_and(|mark| mark.end <= self.start) {
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            self.join_older_marks();
        }
    }

    /// Returns up to `most` bytes from an offset that is kept.
    pub(super) fn copy(&self, from: u64, most: usize) -> Vec<u8> {
        let at = usize::try_from(from.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.range(at..at.saturating_add(most).min(self.bytes.len())).copied().collect()
    }

    /// Returns the mark of the byte at an offset; `None` at the end.
    pub(super) fn mark(&self, offset: u64) -> Option<Mark> {
        self.marks.get(self.marks.partition_point(|mark| mark.end <= offset)).copied()
    }

    /// Returns the end of the bytes that were read before this place in the order.
    pub(super) fn end_before(&self, order: u64) -> u64 {
        let later = self.marks.partition_point(|mark| mark.stamp.order < order);
        later.checked_sub(1).and_then(|last| self.marks.get(last)).map_or(self.start, |mark| mark.end)
    }

    /// Drops everything and keeps nothing from now on; offsets continue.
    pub(super) fn discard(&mut self) {
        self.start = self.end();
        self.bytes = VecDeque::new();
        self.marks = VecDeque::new();
        self.limit = 0;
    }

    /// Frees memory that is not needed.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.marks.shrink_to_fit();
    }

    /// The older half gets half as many marks, each with the stamp of its first bytes.
    fn join_older_marks(&mut self) {
        let newer = self.marks.split_off(MARKS_MAX / 2);
        let older = std::mem::replace(&mut self.marks, VecDeque::with_capacity(MARKS_MAX));
        let mut older = older.into_iter();
        while let Some(first) = older.next() {
            let end = older.next().map_or(first.end, |second| second.end);
            self.marks.push_back(Mark { end, ..first });
        }
        self.marks.extend(newer);
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKS_MAX, Mark, Ring, Stamp};

    fn at(order: u64) -> Stamp {
        Stamp { order, unix_ms: 1000 + order }
    }

    #[test]
    fn the_last_bytes_are_kept_and_places_are_absolute() {
        let mut ring = Ring::new(4);
        ring.append(b"ab", at(1));
        ring.append(b"cde", at(1));
        assert_eq!((ring.start(), ring.end()), (1, 5));
        assert_eq!(ring.copy(2, 2), b"cd");
        ring.append(b"0123456789", at(1));
        assert_eq!((ring.start(), ring.end()), (11, 15));
        assert_eq!(ring.copy(11, 100), b"6789");
        ring.discard();
        ring.append(b"more", at(2));
        assert_eq!((ring.start(), ring.end(), ring.kept(), ring.mark(18)), (19, 19, 0, None));
    }

    #[test]
    fn each_byte_has_the_stamp_with_which_it_was_read() {
        let mut ring = Ring::new(5);
        ring.append(b"ab", at(1));
        ring.append(b"c", at(1));
        ring.append(b"def", at(4));
        let (first, second) = (Mark { end: 3, stamp: at(1) }, Mark { end: 6, stamp: at(4) });
        assert_eq!([ring.mark(1), ring.mark(2), ring.mark(3)], [Some(first), Some(first), Some(second)]);
        assert_eq!(ring.mark(6), None);
        assert_eq!([ring.end_before(1), ring.end_before(2), ring.end_before(9)], [1, 3, 6]);
        ring.append(b"gh", at(5));
        assert_eq!(ring.mark(3), Some(second));
        assert_eq!(ring.end_before(4), 3);
    }

    #[test]
    fn very_many_marks_are_joined_and_none_of_the_newer_ones() {
        let mut ring = Ring::new(1 << 20);
        let most = MARKS_MAX as u64 * 10;
        for order in 0..most {
            ring.append(b"x", at(order));
        }
        assert!(ring.marks.len() <= MARKS_MAX);
        for order in most - MARKS_MAX as u64 / 4..most {
            assert_eq!(ring.mark(order), Some(Mark { end: order + 1, stamp: at(order) }));
        }
        let mut before = None;
        for offset in 0..most {
            let order = ring.mark(offset).unwrap().stamp.order;
            assert!(order <= offset && before.is_none_or(|before| before <= order));
            before = Some(order);
        }
    }
}
