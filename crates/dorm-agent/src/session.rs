//! The input: reads frames from standard input and passes each to its call.
//!
//! This thread never waits for a call, only for the host and for the link.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dorm_agent_proto::frame::{self, Assembler, Decoder, Frame, Kind, Part};
use dorm_agent_proto::{Answer, Failure, Hello, REQUEST_MAX, REVISION, Request, Resync, VERSION};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::agent::Agent;
use crate::call::{Call, Table};
use crate::calls;
use crate::channel::Channel;
use crate::link::wait_ready;
use crate::lock::lock;

const READ_BYTES: usize = 64 * 1024;
const PARTIAL_REQUESTS_MAX: usize = 64;

/// Serves hosts until standard input ends. In a sandbox it does not end: see [`ended`].
pub(crate) fn run(agent: &Arc<Agent>) {
    let mut session = Session {
        agent: Arc::clone(agent),
        table: Table::default(),
        epoch: 0,
        quiet: Quiet::No,
        paused: Paused::No,
        partial: HashMap::new(),
    };
    let mut decoder = Decoder::for_agent();
    let mut buffer = vec![0; READ_BYTES];
    let input = rustix::stdio::stdin();
    loop {
        while let Some(frame) = decoder.next_frame() {
            session.take(frame);
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) if ended(agent) == Ended::ForGood => return,
            Ok(length) => {
                decoder.push(&buffer[..length]);
                buffer[..length].fill(0);
            }
            Err(Errno::AGAIN) => drop(wait_ready(input, PollFlags::IN)),
            Err(Errno::INTR) => {}
            Err(_) if ended(agent) == Ended::ForGood => return,
            Err(_) => {}
        }
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    ForNow,
    ForGood,
}

/// Handles the end of standard input. The first process of a sandbox must not exit: a host may
/// return on the same port. Any other agent runs in a test, and kills its processes.
fn ended(agent: &Agent) -> Ended {
    if rustix::process::getpid().is_init() {
        std::thread::sleep(std::time::Duration::from_millis(50));
        return Ended::ForNow;
    }
    agent.processes.kill_all();
    Ended::ForGood
}

#[derive(PartialEq, Eq)]
enum Quiet {
    Yes,
    No,
}

/// Whether services wait for the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paused {
    No,
    /// Until the next request: the run continues.
    UntilRequest,
    /// Until the identity of a new run is applied. Until then, the variables are those of the
    /// sandbox whose memory this is a copy of.
    UntilResumed,
}

struct Session {
    agent: Arc<Agent>,
    table: Table,
    epoch: u64,
    quiet: Quiet,
    paused: Paused,
    partial: HashMap<u32, Assembler>,
}

impl Session {
    fn take(&mut self, frame: Frame) {
        let resync = (frame.kind == Kind::Resync).then(|| Resync::from_bytes(&frame.payload)).flatten();
        if self.quiet == Quiet::Yes {
            self.quiet = Quiet::No;
            self.agent.processes.continue_limits();
            // Frames that the link holds back for a host that is gone must not count as sent: the
            // next host drops them.
            if resync.is_none() {
                self.agent.link.unquiesce();
            }
        }
        match frame.kind {
            Kind::Resync => self.resync(resync),
            Kind::Request => self.request(frame),
            Kind::Data | Kind::Credit | Kind::End | Kind::Cancel => {
                let Some(channel) = lock(&self.table).get(&frame.channel).cloned() else { return };
                pass(&channel, frame);
            }
            // Only an agent sends these.
            Kind::Hello | Kind::Answer | Kind::Event => {}
        }
    }

    fn resync(&mut self, resync: Option<Resync>) {
        let Some(resync) = resync else { return };
        let left: Vec<_> = lock(&self.table).drain().collect();
        for (_, channel) in left {
            channel.abandon();
        }
        self.partial.clear();
        let generation = self.agent.generation.load(Ordering::Acquire);
        if self.paused != Paused::No {
            self.paused = Paused::UntilResumed;
            // Either the host of this run has started again, and applies no identity, or this is a
            // fork in its first generation.
            if resync.generation == generation {
                self.agent.services.resume_soon();
            }
        }
        let hello = Hello {
            version: VERSION,
            pid: rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(),
            generation,
            revision: REVISION,
        };
        let hello = serde_json::to_vec(&hello).unwrap_or_default();
        self.epoch = self.agent.link.begin(&frame::hello(resync.nonce, &hello));
    }

    fn request(&mut self, frame: Frame) {
        let id = frame.channel;
        let answer_failure = |reason: String| {
            let channel = Channel::new(id, self.epoch, Arc::clone(&self.agent.link));
            let _ = channel.answer(&Err(Failure::Invalid { reason }));
        };
        if frame.part == Part::More && self.partial.len() >= PARTIAL_REQUESTS_MAX && !self.partial.contains_key(&id) {
            return answer_failure("too many long requests at the same time".to_owned());
        }
        let partial = self.partial.entry(id).or_insert_with(|| Assembler::within(REQUEST_MAX));
        let message = match partial.push(frame.part, frame.payload) {
            Ok(None) => return,
            Ok(Some(message)) => message,
            Err(error) => {
                self.partial.remove(&id);
                return answer_failure(error.to_string());
            }
        };
        self.partial.remove(&id);
        let request: Request = match serde_json::from_slice(&message) {
            Ok(request) => request,
            Err(error) => return answer_failure(error.to_string()),
        };
        let channel = Arc::new(Channel::new(id, self.epoch, Arc::clone(&self.agent.link)));
        match (&request, self.paused) {
            // They continue when it is applied.
            (Request::Resumed(_), _) => self.paused = Paused::No,
            (_, Paused::UntilRequest) => {
                self.paused = Paused::No;
                self.agent.services.resume();
            }
            (_, Paused::No | Paused::UntilResumed) => {}
        }
        match request {
            Request::Ping => {
                let _ = channel.answer(&Ok(Answer::Done));
            }
            Request::Quiesce => {
                self.agent.processes.stop_limits();
                self.agent.services.pause();
                channel.answer_and_be_quiet();
                self.quiet = Quiet::Yes;
                if self.paused == Paused::No {
                    self.paused = Paused::UntilRequest;
                }
            }
            other => {
                let call = Call::place(&self.table, id, &channel);
                calls::begin(&self.agent, call, other);
            }
        }
    }
}

fn pass(channel: &Channel, frame: Frame) {
    match frame.kind {
        Kind::Data => channel.deliver(frame.payload),
        Kind::Credit => match frame.payload.try_into() {
            Ok(bytes) => channel.add_credit(u32::from_le_bytes(bytes)),
            Err(_) => channel.vanish(),
        },
        Kind::End => match serde_json::from_slice(&frame.payload) {
            Ok(end) => channel.deliver_end(end),
            Err(_) => channel.vanish(),
        },
        _ => channel.vanish(),
    }
}
