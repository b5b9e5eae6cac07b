//! The output of a process, and its readers.
//!
//! Without a reader, the newest bytes are kept, and the process never waits. With a reader, the
//! process waits if the reader is slower, so that nothing is lost. A reader that has not progressed
//! for [`STALL`] is not waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dorm_agent_proto::{ExitStatus, Offsets, OutputKind};

use super::ring::Ring;
use crate::channel::Channel;

/// How long a process waits for a reader without progress.
pub(super) const STALL: Duration = Duration::from_secs(30);

const KINDS: [OutputKind; 2] = [OutputKind::Stdout, OutputKind::Stderr];

pub(super) struct Outputs {
    rings: [Ring; 2],
    followers: Vec<Follower>,
    last_follower: u64,
    expected_since: Option<Instant>,
    finished: Option<ExitStatus>,
    pump_waits: bool,
}

struct Follower {
    id: u64,
    channel: Arc<Channel>,
    at: [u64; 2],
    moved: Instant,
    stalled: bool,
}

/// The next item for a follower.
pub(super) enum Step {
    Bytes { kind: OutputKind, offset: u64, bytes: Vec<u8> },
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

impl Outputs {
    pub(super) fn new(limit: usize, expected_since: Option<Instant>) -> Self {
        Self {
            rings: [Ring::new(limit), Ring::new(limit)],
            followers: Vec::new(),
            last_follower: 0,
            expected_since,
            finished: None,
            pump_waits: false,
        }
    }

    pub(super) fn attach(&mut self, channel: Arc<Channel>, from: Offsets) -> u64 {
        self.expected_since = None;
        self.last_follower += 1;
        let at = [from.stdout.min(self.rings[0].end()), from.stderr.min(self.rings[1].end())];
        let id = self.last_follower;
        self.followers.push(Follower { id, channel, at, moved: Instant::now(), stalled: false });
        id
    }

    pub(super) fn detach(&mut self, id: u64) {
        self.followers.retain(|follower| follower.id != id);
    }

    pub(super) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Returns the next item to send, and whether the pump waited for this reader.
    pub(super) fn next(&mut self, id: u64, most: usize, now: Instant) -> (Step, bool) {
        let finished = self.finished;
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) else {
            return (Step::Nothing, false);
        };
        for (number, kind) in KINDS.into_iter().enumerate() {
            let ring = &self.rings[number];
            let at = follower.at[number];
            if at == ring.end() {
                continue;
            }
            follower.moved = now;
            follower.stalled = false;
            let step = if at < ring.start() {
                follower.at[number] = ring.start();
                Step::Lost { kind, offset: at, bytes: ring.start() - at }
            } else {
                let bytes = ring.copy(at, most);
                follower.at[number] += bytes.len() as u64;
                Step::Bytes { kind, offset: at, bytes }
            };
            return (step, std::mem::take(&mut self.pump_waits));
        }
        (finished.map_or(Step::Nothing, Step::Ended), false)
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
        for follower in self.followers.iter_mut().filter(|follower| !follower.stalled) {
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

    pub(super) fn append(&mut self, kind: OutputKind, bytes: &[u8], now: Instant) {
        let number = number(kind);
        let end = self.rings[number].end();
        self.rings[number].append(bytes);
        for follower in &mut self.followers {
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
        for follower in &self.followers {
            follower.channel.poke();
        }
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

    use super::{Outputs, Room, STALL, Step};
    use crate::channel::Channel;
    use crate::link::Link;

    fn channel() -> Arc<Channel> {
        Arc::new(Channel::new(1, 1, Arc::new(Link::new())))
    }

    #[test]
    fn without_a_reader_there_is_always_room() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        outputs.append(OutputKind::Stdout, b"123456", now);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(usize::MAX));
    }

    #[test]
    fn a_reader_is_waited_for_until_it_stands_still_too_long() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        let id = outputs.attach(channel(), Offsets::BEGINNING);
        outputs.append(OutputKind::Stdout, b"123", now);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(1));
        outputs.append(OutputKind::Stdout, b"4", now);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Until(now + STALL));
        assert_eq!(outputs.room(OutputKind::Stderr, now), Room::Free(4));
        let (step, pump_waits) = outputs.next(id, 2, now);
        assert!(matches!(step, Step::Bytes { offset: 0, ref bytes, .. } if bytes == b"12") && pump_waits);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Free(2));
        outputs.append(OutputKind::Stdout, b"56", now);
        assert_eq!(outputs.room(OutputKind::Stdout, now + STALL), Room::Free(usize::MAX));
        outputs.append(OutputKind::Stdout, b"789", now);
        let (step, _) = outputs.next(id, 9, now);
        assert!(matches!(step, Step::Lost { offset: 2, bytes: 3, .. }));
        let (step, _) = outputs.next(id, 9, now);
        assert!(matches!(step, Step::Bytes { offset: 5, ref bytes, .. } if bytes == b"6789"));
    }

    #[test]
    fn an_expected_reader_is_waited_for_before_it_comes() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, Some(now));
        outputs.append(OutputKind::Stdout, b"1234", now);
        assert_eq!(outputs.room(OutputKind::Stdout, now), Room::Until(now + STALL));
        assert_eq!(outputs.room(OutputKind::Stdout, now + STALL), Room::Free(usize::MAX));
    }

    #[test]
    fn the_end_comes_behind_all_bytes() {
        let now = Instant::now();
        let mut outputs = Outputs::new(4, None);
        outputs.append(OutputKind::Stderr, b"x", now);
        outputs.finish(ExitStatus::Code(3));
        let id = outputs.attach(channel(), Offsets::BEGINNING);
        assert!(matches!(outputs.next(id, 9, now).0, Step::Bytes { kind: OutputKind::Stderr, .. }));
        assert!(matches!(outputs.next(id, 9, now).0, Step::Ended(ExitStatus::Code(3))));
    }
}
