//! Watchers that keep changes until the host asks for them. They belong to the sandbox: they
//! continue while no host is connected, and across a suspend and a resume.
//!
//! A thread for each watcher takes changes from the kernel as they happen, so that the kernel's own
//! queue does not overflow. If the host does not ask for too long, all changes that are kept are
//! replaced by one that says so.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;

use dorm_agent_proto::{
    Answer, End, Event, Failure, GuestPath, NumberedEvent, Scope, WatchEvent, WatchEventKind, WatcherStatus,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::watch::{BUFFER, Watcher, prepare};
use crate::call::Call;
use crate::link::Gone;
use crate::lock::lock;

/// How many watchers there may be.
const WATCHERS_MAX: usize = 64;
/// How many changes a watcher keeps.
const KEPT_MAX: usize = 65_536;
/// How many bytes the paths of those may have.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// How often a request reads from the kernel: enough for its longest queue, but not forever.
const READS_MAX: usize = 4096;
const STACK_BYTES: usize = 256 << 10;

/// All watchers.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    all: BTreeMap<u64, Arc<Kept>>,
}

struct Kept {
    state: Mutex<State>,
    stop: OwnedFd,
}

struct State {
    watcher: Watcher,
    buffer: Vec<u8>,
    queue: Queue,
}

impl Watchers {
    /// Begins to watch a directory.
    pub(crate) fn create(&self, path: &GuestPath, scope: Scope) -> Result<u64, Failure> {
        let (watcher, stop) = prepare(path, scope)?;
        let queue = Queue::new(path.clone(), KEPT_MAX, KEPT_BYTES_MAX);
        let state = Mutex::new(State { watcher, buffer: vec![0; BUFFER], queue });
        let kept = Arc::new(Kept { state, stop });
        let mut table = lock(&self.0);
        if table.all.len() >= WATCHERS_MAX {
            let reason = format!("there are {WATCHERS_MAX} watchers already: remove some first");
            return Err(Failure::Invalid { reason });
        }
        let of_thread = Arc::clone(&kept);
        let thread = thread::Builder::new().name("watcher".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || of_thread.keep()).map_err(|_| Failure::Busy)?;
        table.last += 1;
        let id = table.last;
        table.all.insert(id, kept);
        Ok(id)
    }

    /// Sends all watchers, oldest first.
    pub(crate) fn list(&self, call: &Call) -> Result<(), Gone> {
        let all: Vec<_> = lock(&self.0).all.iter().map(|(id, kept)| (*id, Arc::clone(kept))).collect();
        call.answer(&Ok(Answer::Follows))?;
        for (watcher, kept) in all {
            let mut state = lock(&kept.state);
            state.take();
            let status = WatcherStatus {
                watcher,
                path: state.watcher.root.clone(),
                scope: state.watcher.scope,
                last: state.queue.last(),
            };
            drop(state);
            call.event(&Event::Watcher(status))?;
        }
        call.end(&End::Complete)
    }

    /// Forgets the changes up to `after`, and sends those behind it.
    pub(crate) fn events(&self, call: &Call, watcher: u64, after: u64, most: u32) -> Result<(), Gone> {
        let changes = self.find(watcher).and_then(|kept| {
            let mut state = lock(&kept.state);
            state.take();
            state.queue.after(after, most as usize)
        });
        match changes {
            Err(failure) => call.answer(&Err(failure)),
            Ok(changes) => {
                call.answer(&Ok(Answer::Follows))?;
                for change in changes {
                    call.event(&Event::Numbered(change))?;
                }
                call.end(&End::Complete)
            }
        }
    }

    /// Ends a watcher.
    pub(crate) fn remove(&self, watcher: u64) -> Result<(), Failure> {
        let kept = lock(&self.0).all.remove(&watcher).ok_or(Failure::NoWatcher { watcher })?;
        // If the counter is full, the thread ends anyway.
        let _ = rustix::io::write(&kept.stop, &1_u64.to_ne_bytes());
        Ok(())
    }

    fn find(&self, watcher: u64) -> Result<Arc<Kept>, Failure> {
        lock(&self.0).all.get(&watcher).cloned().ok_or(Failure::NoWatcher { watcher })
    }
}

impl Kept {
    /// Takes changes until the watcher is removed.
    fn keep(&self) {
        let Ok(inotify) = rustix::io::dup(&lock(&self.state).watcher.inotify) else { return };
        loop {
            let mut ready = [PollFd::new(&inotify, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[1].revents().is_empty() => return,
                Ok(_) | Err(Errno::INTR) => lock(&self.state).take(),
                Err(_) => return,
            }
        }
    }
}

impl State {
    /// Takes all changes that have happened.
    fn take(&mut self) {
        for _ in 0..READS_MAX {
            let Some(events) = self.watcher.events(&mut self.buffer) else { return };
            events.into_iter().for_each(|event| self.queue.push(event));
        }
    }
}

/// Changes with consecutive numbers.
struct Queue {
    root: GuestPath,
    kept: VecDeque<WatchEvent>,
    bytes: usize,
    /// The number of the first one that is kept, or of the next one.
    first: u64,
    most: usize,
    most_bytes: usize,
}

impl Queue {
    fn new(root: GuestPath, most: usize, most_bytes: usize) -> Self {
        Self { root, kept: VecDeque::new(), bytes: 0, first: 1, most, most_bytes }
    }

    fn last(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    fn push(&mut self, event: WatchEvent) {
        if self.kept.len() >= self.most || self.bytes + event.path.as_bytes().len() > self.most_bytes {
            self.first = self.last() + 1;
            self.kept.clear();
            self.bytes = 0;
            self.push(self.overflow());
        }
        self.bytes += event.path.as_bytes().len();
        self.kept.push_back(event);
    }

    /// Forgets the changes up to `after`, and returns at most `most` of those behind it.
    fn after(&mut self, after: u64, most: usize) -> Result<Vec<NumberedEvent>, Failure> {
        if after > self.last() {
            let reason = format!("the watcher has had {} changes, and none with the number {after}", self.last());
            return Err(Failure::Invalid { reason });
        }
        let mut changes = Vec::new();
        let is_missing = after + 1 < self.first;
        if is_missing && self.kept.front().is_none_or(|front| front.kind != WatchEventKind::Overflow) {
            // Another caller has had them forgotten.
            changes.push(NumberedEvent { number: self.first - 1, event: self.overflow() });
        }
        while self.first <= after
            && let Some(event) = self.kept.pop_front()
        {
            self.bytes -= event.path.as_bytes().len();
            self.first += 1;
        }
        let numbered = (self.first..).zip(&self.kept).take(most);
        changes.extend(numbered.map(|(number, event)| NumberedEvent { number, event: event.clone() }));
        changes.truncate(most);
        Ok(changes)
    }

    fn overflow(&self) -> WatchEvent {
        WatchEvent { kind: WatchEventKind::Overflow, path: self.root.clone() }
    }
}

#[cfg(test)]
mod tests {
    use dorm_agent_proto::{GuestPath, WatchEvent, WatchEventKind};

    use super::Queue;

    fn queue() -> Queue {
        Queue::new(GuestPath::try_from("/w").unwrap(), 4, 100)
    }

    fn change(path: &str) -> WatchEvent {
        WatchEvent { kind: WatchEventKind::Created, path: GuestPath::try_from(path).unwrap() }
    }

    fn after(queue: &mut Queue, after: u64) -> Vec<(u64, String)> {
        let changes = queue.after(after, 10).unwrap();
        changes.into_iter().map(|one| (one.number, one.event.path.to_text())).collect()
    }

    fn of(numbers: &[u64]) -> Vec<(u64, String)> {
        numbers.iter().map(|number| (*number, format!("/w/{number}"))).collect()
    }

    #[test]
    fn changes_are_kept_until_the_host_says_that_it_has_them() {
        let mut queue = queue();
        assert_eq!(after(&mut queue, 0), []);
        (1..=3).for_each(|number| queue.push(change(&format!("/w/{number}"))));
        assert_eq!(after(&mut queue, 0), of(&[1, 2, 3]));
        assert_eq!(after(&mut queue, 0), of(&[1, 2, 3]));
        assert_eq!(after(&mut queue, 2), of(&[3]));
        assert_eq!(after(&mut queue, 3), []);
        queue.push(change("/w/4"));
        assert_eq!(after(&mut queue, 3), of(&[4]));
        assert_eq!(queue.after(3, 0).unwrap(), []);
        queue.after(5, 10).unwrap_err();
    }

    #[test]
    fn a_gap_is_an_overflow_that_names_the_directory() {
        let mut queue = queue();
        (1..=5).for_each(|number| queue.push(change(&format!("/w/{number}"))));
        let gap = |number| (number, "/w".to_owned());
        assert_eq!(after(&mut queue, 0), [gap(5), (6, "/w/5".to_owned())]);
        assert_eq!(after(&mut queue, 3), [gap(5), (6, "/w/5".to_owned())]);
        assert_eq!(after(&mut queue, 6), []);
        // A caller with an older number learns that changes are missing.
        assert_eq!(after(&mut queue, 2), [gap(6)]);
        queue.push(change(&format!("/w/{}", "x".repeat(95))));
        queue.push(change("/w/long"));
        let changes = queue.after(6, 10).unwrap();
        assert_eq!(changes[0].event.kind, WatchEventKind::Overflow);
        assert_eq!((changes.len(), changes[1].number), (2, 9));
    }
}
