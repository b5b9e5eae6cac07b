//! Calls about one process of which there may be thousands: readers of its output, waits for its
//! end, and questions for its status.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use dorm_agent_proto::frame::PAYLOAD_MAX;
use dorm_agent_proto::{Answer, End, Event, ExitStatus, Failure, Offsets, OutputHeader};

use super::outputs::{Log, Outputs, Pieces, Step};
use super::{Process, Processes, Stage};
use crate::call::Call;
use crate::channel::Batch;
use crate::courier::{Errand, Next};
use crate::link::Gone;
use crate::lock::lock;
use crate::places::Place;

impl Processes {
    /// Sends output to the host until the process has ended or the host cancels the call.
    pub(crate) fn follow(self: &Arc<Self>, call: &Call, id: u64, from: Offsets, pieces: Pieces) -> Result<(), Gone> {
        let (process, place) = match self.find(id).and_then(|process| Ok((process, self.readers.take()?))) {
            Ok(found) => found,
            Err(failure) => return call.answer(&Err(failure)),
        };
        let outputs = Arc::clone(&process.outputs);
        self.read(call, outputs, Some(process), (from, pieces), place);
        Ok(())
    }

    /// Sends the output of a service to the host until it is over or the host cancels the call.
    pub(crate) fn follow_log(
        self: &Arc<Self>,
        call: &Call,
        log: Result<Log, Failure>,
        from: Offsets,
    ) -> Result<(), Gone> {
        match log.and_then(|log| Ok((log, self.readers.take()?))) {
            Ok((Log(outputs), place)) => {
                self.read(call, outputs, None, (from, Pieces::Timed), place);
                Ok(())
            }
            Err(failure) => call.answer(&Err(failure)),
        }
    }

    fn read(
        self: &Arc<Self>,
        call: &Call,
        outputs: Arc<Mutex<Outputs>>,
        process: Option<Arc<Process>>,
        (from, pieces): (Offsets, Pieces),
        place: Place,
    ) {
        let follower = lock(&outputs).attach(Arc::clone(call), from, pieces);
        let (call, processes) = (call.clone(), Arc::clone(self));
        let stage = Reading::Unanswered;
        let reader = Reader { call, processes, outputs, process, follower, pieces, stage, _place: place };
        self.courier.run(&reader.call.clone(), reader);
    }

    /// Sends the exit status when the process has ended.
    pub(crate) fn wait(&self, call: &Call, id: u64) -> Result<(), Gone> {
        let (process, place) = match self.find(id).and_then(|process| Ok((process, self.waits.take()?))) {
            Ok(found) => found,
            Err(failure) => return call.answer(&Err(failure)),
        };
        lock(&process.life).waiting.push(Arc::clone(call));
        self.courier.run(call, Wait { call: call.clone(), process, _place: place });
        Ok(())
    }

    /// Sends the status of one process.
    pub(crate) fn describe(&self, call: &Call, id: u64) -> Result<(), Gone> {
        match self.find(id) {
            Ok(process) => {
                self.courier.run(call, Question { call: call.clone(), process });
                Ok(())
            }
            Err(failure) => call.answer(&Err(failure)),
        }
    }
}

/// A reader of output.
struct Reader {
    call: Call,
    processes: Arc<Processes>,
    outputs: Arc<Mutex<Outputs>>,
    /// The process, if it is not the output of a service.
    process: Option<Arc<Process>>,
    follower: u64,
    pieces: Pieces,
    stage: Reading,
    _place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Unanswered,
    Open,
}

impl Errand for Reader {
    fn turn(&mut self) -> Next {
        // A host that is gone needs nothing.
        self.send().unwrap_or(Next::Over)
    }
}

impl Reader {
    fn send(&mut self) -> Result<Next, Gone> {
        if self.stage == Reading::Unanswered {
            self.stage = Reading::Open;
            self.call.answer(&Ok(Answer::Follows))?;
        }
        let mut batch = self.call.batch()?;
        let next = self.fill(&mut batch);
        self.call.send(batch)?;
        lock(&self.outputs).sent(self.follower);
        Ok(next)
    }

    /// Adds what can be sent now, up to about a frame: many small pieces are sent together.
    fn fill(&self, batch: &mut Batch) -> Next {
        while batch.may_grow() {
            let most = PAYLOAD_MAX - OutputHeader::LENGTH_MAX;
            let (step, pump_waits) = lock(&self.outputs).next(self.follower, most, Instant::now());
            if pump_waits {
                self.processes.pump.wake();
            }
            match step {
                Step::Bytes { header, bytes } => batch.data(&[&header.to_bytes()[..], &bytes].concat()),
                Step::Lost { kind, offset, bytes } => batch.event(&Event::Lost { kind, offset, bytes }),
                Step::Nothing => return Next::Wait,
                Step::Ended(status) => {
                    batch.event(&self.last_event(status));
                    batch.end(&End::Complete);
                    return Next::Over;
                }
            }
        }
        if batch.is_empty() { Next::Wait } else { Next::Again }
    }

    fn last_event(&self, status: ExitStatus) -> Event {
        match self.pieces {
            Pieces::Long => Event::Exited(status),
            Pieces::Timed => Event::Ended {
                status,
                timed_out: self.process.as_ref().is_some_and(|process| process.has_timed_out(status)),
            },
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.outputs).detach(self.follower);
        self.processes.pump.wake();
    }
}

/// A wait for an end.
struct Wait {
    call: Call,
    process: Arc<Process>,
    _place: Place,
}

impl Errand for Wait {
    fn turn(&mut self) -> Next {
        let stage = lock(&self.process.life).stage;
        match (stage, self.call.has_credit()) {
            (Stage::Ended(status), Ok(_)) => {
                // A host that is gone needs no answer.
                let _ = self.call.answer(&Ok(Answer::Exited(status)));
                Next::Over
            }
            (Stage::Alive | Stage::Buried, Ok(_)) => Next::Wait,
            (_, Err(Gone)) => Next::Over,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        lock(&self.process.life).waiting.retain(|waiting| !Arc::ptr_eq(waiting, &self.call));
    }
}

/// A question for the status of a process.
struct Question {
    call: Call,
    process: Arc<Process>,
}

impl Errand for Question {
    fn turn(&mut self) -> Next {
        let answer = || {
            self.call.answer(&Ok(Answer::Follows))?;
            // A new call has the credit for it.
            self.call.event(&Event::Process(self.process.status()))?;
            self.call.end(&End::Complete)
        };
        // A host that is gone needs no answer.
        let _ = answer();
        Next::Over
    }
}
