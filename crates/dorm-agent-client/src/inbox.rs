//! The received frames of one channel, until its caller takes them. It enforces the protocol: one
//! answer, then no more of the stream than the caller has given credit for, then its end. So a
//! caller that does not read, or an agent that floods, takes a limited amount of memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use dorm_agent_proto::frame::{Assembler, Frame, Kind, PAYLOAD_MAX};
use dorm_agent_proto::{ANSWER_MAX, EVENT_MAX, WINDOW};

/// How many items may wait to be taken. Credit counts their bytes, but each item takes memory of
/// its own: an agent that sends no empty ones has used up its credit long before.
const ITEMS_MAX: usize = WINDOW as usize / 8;

/// The received items of one channel. Answers, events and ends are unparsed JSON.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Incoming {
    Answer(Vec<u8>),
    Data(Bytes),
    Event(Vec<u8>),
    End(Vec<u8>),
}

/// Whether the boundaries of data frames are significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bounds {
    /// Each frame is a message.
    Kept,
    /// The frames are consecutive bytes.
    None,
}

/// The inbox of one channel. One task takes from it; the connection's reader adds to it.
#[derive(Debug)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug)]
struct State {
    items: VecDeque<Item>,
    bounds: Bounds,
    stage: Stage,
    /// The number of bytes that the agent may still send. The last frame may overdraw it.
    credit: i64,
    answer: Assembler,
    event: Assembler,
    is_closed: bool,
    waiting: Option<Waker>,
}

#[derive(Debug)]
enum Item {
    /// Data to which more can be appended.
    Data(Vec<u8>),
    Other(Incoming),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Asked,
    Answered,
    Ended,
}

impl Inbox {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Mutex::new(State {
            items: VecDeque::new(),
            bounds,
            stage: Stage::Asked,
            credit: i64::from(WINDOW),
            answer: Assembler::within(ANSWER_MAX),
            event: Assembler::within(EVENT_MAX),
            is_closed: false,
            waiting: None,
        }))
    }

    /// Adds a frame from the agent. Fails if the agent may not send it.
    pub(crate) fn put(&self, frame: Frame) -> Result<(), String> {
        let mut state = self.lock();
        let woken = state.put(frame)?.then(|| state.waiting.take()).flatten();
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
        Ok(())
    }

    /// Lets the agent send this many more bytes.
    pub(crate) fn grant(&self, bytes: u32) {
        let mut state = self.lock();
        state.credit = state.credit.saturating_add(i64::from(bytes));
    }

    /// Closes the inbox: nothing more arrives.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let Some(waker) = state.waiting.take() {
            waker.wake();
        }
    }

    /// Takes the next item; `None` when nothing more arrives.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<Incoming>> {
        // An agent that always sends more does not monopolise its caller's thread.
        let turn = ready!(tokio::task::coop::poll_proceed(context));
        let mut state = self.lock();
        let next = match state.items.pop_front() {
            Some(Item::Data(data)) => Some(Incoming::Data(Bytes::from(data))),
            Some(Item::Other(incoming)) => Some(incoming),
            None if state.is_closed => None,
            None => {
                state.waiting = Some(context.waker().clone());
                return Poll::Pending;
            }
        };
        turn.made_progress();
        Poll::Ready(next)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether there is an item to take now.
    fn put(&mut self, frame: Frame) -> Result<bool, String> {
        let Frame { kind, part, payload, .. } = frame;
        if self.items.len() >= ITEMS_MAX {
            return Err(format!("more than {ITEMS_MAX} items of a stream before any was taken"));
        }
        match (kind, self.stage) {
            (Kind::Answer, Stage::Asked) => {
                let Some(answer) = self.answer.push(part, payload).map_err(|error| error.to_string())? else {
                    return Ok(false);
                };
                self.stage = Stage::Answered;
                self.items.push_back(Item::Other(Incoming::Answer(answer)));
            }
            (Kind::Data, Stage::Answered) => {
                if payload.is_empty() {
                    return Err("an empty data frame".to_owned());
                }
                self.charge(payload.len())?;
                match self.items.back_mut() {
                    Some(Item::Data(data))
                        if self.bounds == Bounds::None && data.len() + payload.len() <= PAYLOAD_MAX =>
                    {
                        data.extend_from_slice(&payload);
                    }
                    _ => self.items.push_back(Item::Data(payload)),
                }
            }
            (Kind::Event, Stage::Answered) => {
                if self.event.is_empty() && payload.is_empty() {
                    return Err("an empty event".to_owned());
                }
                // The whole event is charged when it begins.
                match self.event.is_empty() {
                    true => self.charge(payload.len())?,
                    false => self.overdraw(payload.len()),
                }
                let Some(event) = self.event.push(part, payload).map_err(|error| error.to_string())? else {
                    return Ok(false);
                };
                self.items.push_back(Item::Other(Incoming::Event(event)));
            }
            (Kind::End, Stage::Answered) => {
                self.stage = Stage::Ended;
                self.items.push_back(Item::Other(Incoming::End(payload)));
            }
            (kind, Stage::Asked) => return Err(format!("{kind:?} before the answer")),
            (Kind::Answer, _) => return Err("two answers to one request".to_owned()),
            (kind, _) => return Err(format!("{kind:?} after the end of a stream")),
        }
        Ok(true)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        if self.credit <= 0 {
            return Err("more stream data than it has credit for".to_owned());
        }
        self.overdraw(bytes);
        Ok(())
    }

    fn overdraw(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use dorm_agent_proto::frame::Part;

    use super::*;

    fn frame(kind: Kind, part: Part, payload: impl Into<Vec<u8>>) -> Frame {
        Frame { kind, part, channel: 1, payload: payload.into() }
    }

    fn answered(bounds: Bounds) -> Inbox {
        let inbox = Inbox::new(bounds);
        inbox.put(frame(Kind::Answer, Part::Last, "1")).unwrap();
        assert_eq!(next(&inbox), Some(Incoming::Answer(b"1".to_vec())));
        inbox
    }

    fn next(inbox: &Inbox) -> Option<Incoming> {
        match inbox.poll_take(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_agent_sends_as_much_as_it_has_credit_for_and_no_more() {
        let inbox = answered(Bounds::Kept);
        let data = || frame(Kind::Data, Part::Last, vec![0; PAYLOAD_MAX]);
        for _ in 0..WINDOW as usize / PAYLOAD_MAX {
            inbox.put(data()).unwrap();
        }
        inbox.put(data()).unwrap_err();
        // Taking an item does not give credit yet.
        next(&inbox).unwrap();
        inbox.put(data()).unwrap_err();
        inbox.grant(1);
        inbox.put(data()).unwrap();
        inbox.put(data()).unwrap_err();
    }

    #[test]
    fn one_byte_at_a_time_takes_no_more_room_than_all_at_once() {
        let inbox = answered(Bounds::None);
        for byte in 0..WINDOW {
            inbox.put(frame(Kind::Data, Part::Last, [byte.to_le_bytes()[0]])).unwrap();
        }
        let mut taken = Vec::new();
        let mut items = 0;
        while let Some(Incoming::Data(data)) = next(&inbox) {
            taken.extend_from_slice(&data);
            items += 1;
        }
        assert_eq!(items, WINDOW as usize / PAYLOAD_MAX);
        assert!(
            taken.iter().enumerate().all(|(at, byte)| at.to_le_bytes()[0] == *byte) && taken.len() == WINDOW as usize
        );
    }

    #[test]
    fn frames_that_mean_something_stay_what_they_are() {
        let inbox = answered(Bounds::Kept);
        for text in ["ab", "c"] {
            inbox.put(frame(Kind::Data, Part::Last, text)).unwrap();
        }
        assert_eq!(next(&inbox), Some(Incoming::Data(Bytes::from_static(b"ab"))));
        assert_eq!(next(&inbox), Some(Incoming::Data(Bytes::from_static(b"c"))));
    }

    #[test]
    fn a_long_event_may_overdraw_once_and_has_an_end() {
        let inbox = answered(Bounds::Kept);
        let part = |part| frame(Kind::Event, part, vec![b'1'; PAYLOAD_MAX]);
        for _ in 0..EVENT_MAX / PAYLOAD_MAX - 1 {
            inbox.put(part(Part::More)).unwrap();
        }
        inbox.put(part(Part::Last)).unwrap();
        assert!(matches!(next(&inbox), Some(Incoming::Event(event)) if event.len() == EVENT_MAX));
        inbox.put(part(Part::Last)).unwrap_err();
        let inbox = answered(Bounds::Kept);
        for _ in 0..EVENT_MAX / PAYLOAD_MAX {
            inbox.put(part(Part::More)).unwrap();
        }
        inbox.put(part(Part::More)).unwrap_err();
    }

    #[test]
    fn items_are_counted_whatever_their_length() {
        for kind in [Kind::Data, Kind::Event] {
            let inbox = answered(Bounds::Kept);
            for _ in 0..ITEMS_MAX {
                inbox.put(frame(kind, Part::Last, "1")).unwrap();
            }
            inbox.put(frame(kind, Part::Last, "1")).unwrap_err();
            // There is room again for as many as are taken.
            next(&inbox).unwrap();
            inbox.put(frame(kind, Part::Last, "1")).unwrap();
            inbox.put(frame(kind, Part::Last, "1")).unwrap_err();
        }
    }

    #[test]
    fn nothing_comes_before_the_answer_twice_or_behind_the_end() {
        let inbox = Inbox::new(Bounds::Kept);
        for kind in [Kind::Data, Kind::Event, Kind::End] {
            inbox.put(frame(kind, Part::Last, "1")).unwrap_err();
        }
        let inbox = answered(Bounds::Kept);
        inbox.put(frame(Kind::Answer, Part::Last, "1")).unwrap_err();
        for part in [Part::Last, Part::More] {
            inbox.put(frame(Kind::Data, part, "")).unwrap_err();
            inbox.put(frame(Kind::Event, part, "")).unwrap_err();
        }
        inbox.put(frame(Kind::End, Part::Last, "1")).unwrap();
        for kind in [Kind::Data, Kind::Event, Kind::End, Kind::Answer] {
            inbox.put(frame(kind, Part::Last, "1")).unwrap_err();
        }
        let inbox = Inbox::new(Bounds::Kept);
        for _ in 0..ANSWER_MAX / PAYLOAD_MAX {
            inbox.put(frame(Kind::Answer, Part::More, vec![0; PAYLOAD_MAX])).unwrap();
        }
        inbox.put(frame(Kind::Answer, Part::More, "1")).unwrap_err();
    }

    #[test]
    fn what_came_before_the_connection_ended_is_still_taken() {
        let inbox = answered(Bounds::Kept);
        inbox.put(frame(Kind::Data, Part::Last, "a")).unwrap();
        inbox.close();
        assert_eq!(next(&inbox), Some(Incoming::Data(Bytes::from_static(b"a"))));
        assert!(matches!(inbox.poll_take(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)));
    }
}
