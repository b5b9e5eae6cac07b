//! One thread moves the bytes of all processes: output into their rings, queued input into their
//! pipes.
//!
//! It never waits for a reader: if a ring would lose bytes that a reader still needs, it does not
//! read from that pipe until the reader has progressed, and the process waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use dorm_agent_proto::{ExitStatus, OutputKind};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::outputs::Room;
use super::{Process, unix_ms};
use crate::lock::lock;

const READ_BYTES: usize = 64 * 1024;
/// The maximum size of a pipe, which limits what an ended process left in it.
const LEFT_BEHIND_MAX: usize = 1024 * 1024;

/// The interface of other threads to the pump.
pub(super) struct Pump {
    wake: OwnedFd,
    news: Mutex<Vec<News>>,
}

/// The source of one output of a process.
pub(super) struct Source {
    pub(super) kind: OutputKind,
    pub(super) descriptor: OwnedFd,
}

enum News {
    Born { process: Arc<Process>, sources: Vec<Source>, input: Option<OwnedFd> },
    Died { process: Arc<Process>, status: ExitStatus },
}

impl Pump {
    pub(super) fn start_thread() -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let pump = Arc::new(Self { wake, news: Mutex::default() });
        let shared = Arc::clone(&pump);
        thread::Builder::new().name("pump".to_owned()).spawn(move || {
            let mut patients = Vec::new();
            let mut buffer = vec![0; READ_BYTES];
            loop {
                turn(&shared, &mut patients, &mut buffer);
            }
        })?;
        Ok(pump)
    }

    pub(super) fn add(&self, process: Arc<Process>, sources: Vec<Source>, input: Option<OwnedFd>) {
        lock(&self.news).push(News::Born { process, sources, input });
        self.wake();
    }

    pub(super) fn died(&self, process: Arc<Process>, status: ExitStatus) {
        lock(&self.news).push(News::Died { process, status });
        self.wake();
    }

    /// Makes the pump check everything again.
    pub(super) fn wake(&self) {
        // If the counter is full, it wakes anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// A process with open descriptors.
struct Patient {
    process: Arc<Process>,
    sources: Vec<Open>,
    input: Option<OwnedFd>,
    dying: Option<Dying>,
}

struct Open {
    source: Source,
    state: SourceState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    Open,
    Over,
}

/// It has ended; the rest of its pipes must still be read.
struct Dying {
    status: ExitStatus,
    drained: Vec<(OutputKind, usize)>,
}

#[derive(Clone, Copy)]
enum Slot {
    Source { patient: usize, source: usize, room: usize },
    Input { patient: usize },
}

fn turn(pump: &Pump, patients: &mut Vec<Patient>, buffer: &mut [u8]) {
    take_news(pump, patients);
    drain_dying(patients, buffer);
    patients.retain(|patient| !patient.sources.is_empty() || patient.input.is_some() || patient.dying.is_some());

    let now = Instant::now();
    let mut slots = Vec::new();
    let mut deadline: Option<Instant> = None;
    let mut descriptors = vec![PollFd::new(&pump.wake, PollFlags::IN)];
    for (number, patient) in patients.iter().enumerate() {
        for (source, open) in patient.sources.iter().enumerate() {
            match patient.process.room(open.source.kind, now) {
                Room::Free(room) => {
                    slots.push(Slot::Source { patient: number, source, room });
                    descriptors.push(PollFd::new(&open.source.descriptor, PollFlags::IN));
                }
                Room::Until(until) => deadline = Some(deadline.map_or(until, |deadline| deadline.min(until))),
            }
        }
        if let Some(input) = &patient.input
            && lock(&patient.process.input).front().is_some()
        {
            slots.push(Slot::Input { patient: number });
            descriptors.push(PollFd::new(input, PollFlags::OUT));
        }
    }
    let timeout = deadline.map(|deadline| timespec_until(deadline, now));
    if poll(&mut descriptors, timeout.as_ref()).is_err() {
        return;
    }
    let ready: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    drop(descriptors);
    if ready.first() == Some(&true) {
        let _ = rustix::io::read(&pump.wake, &mut [0_u8; 8]);
    }
    for (slot, _) in slots.into_iter().zip(ready.into_iter().skip(1)).filter(|(_, ready)| *ready) {
        match slot {
            Slot::Source { patient, source, room } => {
                let patient = &mut patients[patient];
                read_some(&patient.process, &mut patient.sources[source], room, buffer);
            }
            Slot::Input { patient } => write_some(&mut patients[patient]),
        }
    }
    for patient in patients.iter_mut() {
        patient.sources.retain(|open| open.state == SourceState::Open);
        if patient.input.is_some() && lock(&patient.process.input).is_over() {
            patient.input = None;
        }
    }
}

fn take_news(pump: &Pump, patients: &mut Vec<Patient>) {
    for news in std::mem::take(&mut *lock(&pump.news)) {
        match news {
            News::Born { process, sources, input } => {
                let sources = sources.into_iter().map(|source| Open { source, state: SourceState::Open }).collect();
                // Without bytes, it may have ended already, and nothing would wake the pump for it.
                let input = input.filter(|_| !lock(&process.input).is_over());
                patients.push(Patient { process, sources, input, dying: None });
            }
            News::Died { process, status } => {
                lock(&process.input).close_now();
                match patients.iter_mut().find(|patient| Arc::ptr_eq(&patient.process, &process)) {
                    Some(patient) => {
                        patient.input = None;
                        patient.dying = Some(Dying { status, drained: Vec::new() });
                    }
                    None => {
                        process.announce(status);
                        lock(&process.outputs).finish(status);
                    }
                }
            }
        }
    }
}

/// Reads the rest of ended processes' pipes, as far as readers allow, and then notifies readers of
/// the end. Other writers to the same pipe must not delay this forever.
fn drain_dying(patients: &mut [Patient], buffer: &mut [u8]) {
    for patient in patients {
        let Some(dying) = &mut patient.dying else { continue };
        let mut waiting = false;
        for open in &mut patient.sources {
            let kind = open.source.kind;
            let mut read = dying.drained.iter().find(|(drained, _)| *drained == kind).map_or(0, |(_, read)| *read);
            dying.drained.retain(|(drained, _)| *drained != kind);
            while open.state == SourceState::Open && read < LEFT_BEHIND_MAX {
                let room = patient.process.room(kind, Instant::now());
                let Room::Free(room) = room else {
                    waiting = true;
                    break;
                };
                match read_some(&patient.process, open, room, buffer) {
                    0 => read = LEFT_BEHIND_MAX,
                    bytes => read += bytes,
                }
            }
            dying.drained.push((kind, read));
        }
        patient.sources.retain(|open| open.state == SourceState::Open);
        let status = dying.status;
        // A slow reader does not delay calls that only wait for the end. A reader who has seen the
        // end finds it in the status.
        patient.process.announce(status);
        if !waiting && (patient.sources.is_empty() || !patient.process.waits_for_pipes.load(Ordering::Acquire)) {
            lock(&patient.process.outputs).finish(status);
            patient.dying = None;
            if patient.sources.is_empty() {
                *lock(&patient.process.terminal) = None;
            }
        }
    }
}

/// Reads once. Returns the number of bytes; 0 if there are none now, or none any more.
fn read_some(process: &Process, open: &mut Open, room: usize, buffer: &mut [u8]) -> usize {
    let most = room.min(buffer.len());
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&open.source.descriptor, &mut buffer[..most]));
    match read {
        Ok(length) if length > 0 => {
            process.append(open.source.kind, &buffer[..length], Instant::now(), unix_ms());
            length
        }
        Err(Errno::AGAIN) => 0,
        // A terminal ends with an error when its last user is gone.
        Ok(_) | Err(_) => {
            open.state = SourceState::Over;
            0
        }
    }
}

fn write_some(patient: &mut Patient) {
    let Some(descriptor) = &patient.input else { return };
    let mut input = lock(&patient.process.input);
    let Some(front) = input.front() else { return };
    match rustix::io::write(descriptor.as_fd(), front) {
        Ok(written) => input.advance(written),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => input.close_now(),
    }
}

fn timespec_until(deadline: Instant, now: Instant) -> Timespec {
    let rest = deadline.saturating_duration_since(now);
    Timespec {
        tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
        // Rounded up, so that the deadline has passed when it wakes.
        tv_nsec: i64::from(rest.subsec_nanos().saturating_add(1_000_000).min(999_999_999)),
    }
}
