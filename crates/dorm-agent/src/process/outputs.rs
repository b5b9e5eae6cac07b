//! The output of a process, and its readers.
//!
//! Without a reader, the newest bytes are kept, and the process never waits. With a reader, the
//! process waits if the reader is slower, so that nothing is lost. A reader that has not progressed
//! for [`STALL`] is not waited for.
//!
//! Readers get both streams in the order in which they were read from the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dorm_agent_proto::{ExitStatus, Offsets, OutputHeader, OutputKind};

use super::ring::{Ring, Stamp};
use crate::channel::Channel;
use crate::lock::lock;

/// How long a process waits for a reader without progress.
pub(super) const STALL: Duration = Duration::from_secs(30);

const KINDS: [OutputKind; 2] = [OutputKind::Stdout, OutputKind::Stderr];

pub(super) struct Outputs {
    rings: [Ring; 2],
    followers: BTreeMap<u64, Follower>,
    last_follower: u64,
    /// The offsets of readers when their host left them; the least of several.
    left_at: Option<[u64; 2]>,
    /// The last bytes that were read.
    last: Option<(OutputKind, Stamp)>,
    expected_since: Option<Instant>,
    finished: Option<ExitStatus>,
    pump_waits: bool,
}

struct Follower {
    channel: Arc<Channel>,
    pieces: Pieces,
    at: [u64; 2],
    /// Up to where its host has it.
    sent: [u64; 2],
    moved: Instant,
    stalled: bool,
}

/// The pieces in which a follower gets output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pieces {
    /// As many bytes of one stream as the order permits.
    Long,
    /// Bytes that were read at one time, with that time.
    Timed,
}

/// The next item for a follower.
pub(super) enum Step {
    Bytes { header: OutputHeader, bytes: Vec<u8> },
    Lost { kind: OutputKind, offset: u64, bytes: u64 },
    Nothing,
    Ended(ExitStatus),
}

/// How much may be read from a process now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Free(usize),
    Until(Instant),
}

impl Room {
    /// Returns how much may be read if both must agree.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Free(one), Self::Free(other)) => Self::Free(one.min(other)),
            (Self::Until(one), Self::Until(other)) => Self::Until(one.min(other)),
            (until @ Self::Until(_), Self::Free(_)) | (Self::Free(_), until @ Self::Until(_)) => until,
        }
    }
}

/// The output of several processes that follow each other.
#[derive(Clone)]
pub(crate) struct Log(pub(super) Arc<Mutex<Outputs>>);

impl Log {
    /// Keeps so many bytes of each stream.
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Outputs::new(limit, None))))
    }

    pub(super) fn room(&self, kind: OutputKind, now: Instant) -> Room {
        lock(&self.0).room(kind, now)
    }

    pub(super) fn append(&self, kind: OutputKind, bytes: &[u8], now: Instant, unix_ms: u64) {
        lock(&self.0).append(kind, bytes, now, unix_ms);
    }

    /// Tells readers that nothing follows.
    pub(crate) fn finish(&self, status: ExitStatus) {
        lock(&self.0).finish(status);
    }

    pub(crate) fn written(&self) -> Offsets {
        lock(&self.0).written()
    }
}

impl Outputs {
    pub(super) fn new(limit: usize, expected_since: Option<Instant>) -> Self {
        Self {
            rings: [Ring::new(limit), Ring::new(limit)],
            followers: BTreeMap::new(),
            last_follower: 0,
            left_at: None,
            last: None,
            expected_since,
            finished: None,
            pump_waits: false,
        }
    }

    pub(super) fn attach(&mut self, channel: Arc<Channel>, from: Offsets, pieces: Pieces) -> u64 {
        self.expected_since = None;
        self.last_follower += 1;
        let ends = [self.rings[0].end(), self.rings[1].end()];
        let at = match self.take_left(from) {
            // Bytes that are no longer kept were dropped while no host could read them.
            Some(left) => [0, 1].map(|number| left[number].clamp(self.rings[number].start(), ends[number])),
            None => [from.stdout.min(ends[0]), from.stderr.min(ends[1])],
        };
        let follower = Follower { channel, pieces, at, sent: at, moved: Instant::now(), stalled: false };
        self.followers.insert(self.last_follower, follower);
        self.last_follower
    }

    pub(super) fn detach(&mut self, id: u64) {
        let Some(follower) = self.followers.remove(&id).filter(|follower| follower.channel.is_abandoned()) else {
            return;
        };
        let [stdout, stderr] = self.left_at.unwrap_or(follower.sent);
        self.left_at = Some([stdout.min(follower.sent[0]), stderr.min(follower.sent[1])]);
    }

    /// Records that the host of a follower has everything that the follower was given.
    pub(super) fn sent(&mut self, id: u64) {
        if let Some(follower) = self.followers.get_mut(&id) {
            follower.sent = follower.at;
        }
    }

    /// Returns where the readers were that a host has left, for the one that continues there.
    fn take_left(&mut self, from: Offsets) -> Option<[u64; 2]> {
        if from != Offsets::CONTINUED {
            return None;
        }
        let left = self.followers.iter().filter(|(_, follower)| follower.channel.is_abandoned());
        let left: Vec<u64> = left.map(|(id, _)| *id).collect();
        left.into_iter().for_each(|id| self.detach(id));
        self.left_at.take()
    }

    pub(super) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Returns the next item to send, and whether the pump waited for this reader.
    pub(super) fn next(&mut self, id: u64, most: usize, now: Instant) -> (Step, bool) {
        let Some(follower) = self.followers.get_mut(&id) else { return (Step::Nothing, false) };
        let lost = (0..KINDS.len()).find(|number| follower.at[*number] < self.rings[*number].start());
        let step = match lost {
            Some(number) => {
                let (offset, start) = (follower.at[number], self.rings[number].start());
                follower.at[number] = start;
                Step::Lost { kind: KINDS[number], offset, bytes: start - offset }
            }
            None => match follower.next_bytes(&self.rings, most) {
                Some((header, bytes)) => Step::Bytes { header, bytes },
                None => return (self.finished.map_or(Step::Nothing, Step::Ended), false),
            },
        };
        follower.moved = now;
        follower.stalled = false;
        (step, std::mem::take(&mut self.pump_waits))
    }

    /// Returns how much may be read from the process without losing what a reader still needs.
    pub(super) fn room(&mut self, kind: OutputKind, now: Instant) -> Room {
        let number = number(kind);
        let ring = &self.rings[number];
        let mut needed = 0;
        let mut until: Option<Instant> = None;
        if let Some(since) = self.expected_since {
            if now >= since + STALL {
                self.expected_since = None;
            } else {
                needed = ring.end();
                until = Some(since + STALL);
            }
        }
        for follower in self.followers.values_mut().filter(|follower| !follower.stalled) {
            let lag = ring.end() - follower.at[number];
            if lag >= ring.limit() as u64 && now >= follower.moved + STALL {
                follower.stalled = true;
                continue;
            }
            needed = needed.max(lag);
            let deadline = follower.moved + STALL;
            until = Some(until.map_or(deadline, |until| until.min(deadline)));
        }
        let Some(until) = until else { return Room::Free(usize::MAX) };
        let room = (ring.limit() as u64).saturating_sub(needed);
        if room > 0 {
            Room::Free(usize::try_from(room).unwrap_or(usize::MAX))
        } else if ring.limit() == 0 {
            Room::Free(usize::MAX)
        } else {
            self.pump_waits = true;
            Room::Until(until)
        }
    }

    pub(super) fn append(&mut self, kind: OutputKind, bytes: &[u8], now: Instant, unix_ms: u64) {
        let number = number(kind);
        let end = self.rings[number].end();
        let stamp = match self.last {
            Some((last, stamp)) if last == kind && stamp.unix_ms == unix_ms => stamp,
            last => Stamp { order: last.map_or(0, |(_, stamp)| stamp.order + 1), unix_ms },
        };
        self.last = Some((kind, stamp));
        self.rings[number].append(bytes, stamp);
        for follower in self.followers.values_mut() {
            if follower.at[number] == end {
                follower.moved = now;
            }
            follower.channel.poke();
        }
    }

    /// Records that the process has ended and all its output until then is here.
    pub(super) fn finish(&mut self, status: ExitStatus) {
        self.finished = Some(status);
        for ring in &mut self.rings {
            ring.shrink();
        }
        for follower in self.followers.values() {
            follower.channel.poke();
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    pub(super) fn written(&self) -> Offsets {
        Offsets { stdout: self.rings[0].end(), stderr: self.rings[1].end() }
    }

    pub(super) fn kept(&self) -> usize {
        self.rings.iter().map(Ring::kept).sum()
    }

    pub(super) fn discard(&mut self) {
        self.rings.iter_mut().for_each(Ring::discard);
    }
}

impl Follower {
    /// Returns the bytes that were read first of those that it does not have, and advances past
    /// them. They are all kept.
    fn next_bytes(&mut self, rings: &[Ring; 2], most: usize) -> Option<(OutputHeader, Vec<u8>)> {
        let marks = [rings[0].mark(self.at[0]), rings[1].mark(self.at[1])];
        let orders = marks.map(|mark| mark.map_or(u64::MAX, |mark| mark.stamp.order));
        let number = usize::from(orders[1] < orders[0]);
        let (mark, ring, offset) = (marks[number]?, &rings[number], self.at[number]);
        let end = match self.pieces {
            Pieces::Long => ring.end_before(orders[1 - number]),
            Pieces::Timed => mark.end,
        };
        let bytes = ring.copy(offset, most.min(usize::try_from(end - offset).unwrap_or(usize::MAX)));
        self.at[number] += bytes.len() as u64;
        let read_unix_ms = (self.pieces == Pieces::Timed).then_some(mark.stamp.unix_ms);
        Some((OutputHeader { kind: KINDS[number], offset, read_unix_ms }, bytes))
    }
}

fn number(kind: OutputKind) -> usize {
    match kind {
        OutputKind::Stdout => 0,
        OutputKind::Stderr => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use dorm_agent_proto::{ExitStatus, Offsets, OutputKind};

    use super::{Outputs, Pieces, Room, STALL, Step};
    use crate::channel::Channel;
    use crate::link::Link;

    fn channel() -> Arc<Channel> {
        Arc::new(Channel::new(1, 1, Arc::new(Link::new())))
    }

    #[test]
    fn without_a_reader_there_is_always_room() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        outputs.append(OutputKind::Stdout, b"123456", now, 1);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(usize::MAX));
    }

    #[test]
    fn a_reader_is_waited_for_until_it_stands_still_too_long() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        let id = outputs.attach(channel(), Offsets::BEGINNING, Pieces::Long);
        outputs.append(OutputKind::Stdout, b"123", now, 1);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(1));
        outputs.append(OutputKind::Stdout, b"4", now, 1);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Until(now + STALL));
        assert_eq!(outputs.room(OutputKind::Stderr, now), Room::Free(4));
        let (step, pump_waits) = outputs.next(id, 2, now);
        assert!(
            matches!(step, Step::Bytes { header, ref bytes } if header.offset == 0 && bytes == b"12") && pump_waits
        );
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(2));
        outputs.append(OutputKind::Stdout, b"56", now, 1);
        assert_eq!(outputs.room(OutputKind::Stdout, now + STALL), Room::Free(usize::MAX));
        outputs.append(OutputKind::Stdout, b"789", now, 1);
        let (step, _) = outputs.next(id, 9, now);
        assert!(matches!(step, Step::Lost { offset: 2, bytes: 3, .. }));
        let (step, _) = outputs.next(id, 9, now);
        assert!(matches!(step, Step::Bytes { header, ref bytes } if header.offset == 5 && bytes == b"6789"));
    }

    #[test]
    fn a_reader_continues_where_a_host_has_left_another() {
        let now = Instant::now();
        let next = |outputs: &mut Outputs, id| match outputs.next(id, 9, now).0 {
            Step::Bytes { header, bytes } => (header.offset, String::from_utf8(bytes).unwrap()),
            Step::Lost { .. } | Step::Nothing | Step::Ended(_) => (u64::MAX, String::new()),
        };
        let nothing = (u64::MAX, String::new());
        let mut outputs = Outputs::new(8, None);
        let host = channel();
        let left = outputs.attach(host.clone(), Offsets::CONTINUED, Pieces::Long);
        outputs.append(OutputKind::Stdout, b"ab", now, 1);
        assert_eq!(next(&mut outputs, left), (0, "ab".to_owned()));
        outputs.sent(left);
        outputs.append(OutputKind::Stdout, b"cd", now, 1);
        assert_eq!(next(&mut outputs, left), (2, "cd".to_owned()));
        // The host leaves before it has the second piece.
        host.abandon();
        let new = outputs.attach(channel(), Offsets::NOW, Pieces::Long);
        assert_eq!(next(&mut outputs, new), nothing);
        let continued = outputs.attach(channel(), Offsets::CONTINUED, Pieces::Long);
        assert_eq!(next(&mut outputs, continued), (2, "cd".to_owned()));
        let again = outputs.attach(channel(), Offsets::CONTINUED, Pieces::Long);
        assert_eq!(next(&mut outputs, again), nothing);
        // A call that was cancelled is not continued.
        outputs.detach(continued);
        outputs.append(OutputKind::Stdout, b"0123456789", now, 1);
        let later = outputs.attach(channel(), Offsets::CONTINUED, Pieces::Long);
        assert_eq!(next(&mut outputs, later), nothing);
    }

    #[test]
    fn an_expected_reader_is_waited_for_before_it_comes() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, Some(now));
        outputs.append(OutputKind::Stdout, b"1234", now, 1);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Until(now + STALL));
        assert_eq!(outputs.room(OutputKind::Stdout, now + STALL), Room::Free(usize::MAX));
    }

    #[test]
    fn the_end_comes_behind_all_bytes() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        outputs.append(OutputKind::Stderr, b"x", now, 1);
        outputs.finish(ExitStatus::Code(3));
        let id = outputs.attach(channel(), Offsets::BEGINNING, Pieces::Long);
        assert!(matches!(outputs.next(id, 9, now).0, Step::Bytes { header, .. } if header.kind == OutputKind::Stderr));
        assert!(matches!(outputs.next(id, 9, now).0, Step::Ended(ExitStatus::Code(3))));
    }

    #[test]
    fn both_streams_come_in_the_order_in_which_they_were_read() {
        use OutputKind::{Stderr, Stdout};

        let now = Instant::now();
        let mut outputs = Outputs::new(100, None);
        let written = [(Stdout, "a", 1), (Stdout, "b", 2), (Stderr, "c", 2), (Stdout, "d", 2), (Stdout, "e", 2)];
        for (kind, text, unix_ms) in written {
            outputs.append(kind, text.as_bytes(), now, unix_ms);
        }
        let mut pieces = |from, pieces| {
            let id = outputs.attach(channel(), from, pieces);
            let mut seen = Vec::new();
            while let (Step::Bytes { header, bytes }, _) = outputs.next(id, 9, now) {
                seen.push((header.kind, header.offset, header.read_unix_ms, String::from_utf8(bytes).unwrap()));
            }
            seen
        };
        let piece = |kind, offset, time, text: &str| (kind, offset, time, text.to_owned());
        assert_eq!(
            pieces(Offsets::BEGINNING, Pieces::Long),
            [piece(Stdout, 0, None, "ab"), piece(Stderr, 0, None, "c"), piece(Stdout, 2, None, "de")]
        );
        assert_eq!(
            pieces(Offsets { stdout: 1, stderr: 0 }, Pieces::Timed),
            [piece(Stdout, 1, Some(2), "b"), piece(Stderr, 0, Some(2), "c"), piece(Stdout, 2, Some(2), "de")]
        );
        assert_eq!(pieces(Offsets { stdout: 3, stderr: 1 }, Pieces::Timed), [piece(Stdout, 3, Some(2), "e")]);
    }
}
