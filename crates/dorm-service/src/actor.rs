//! The one task that drives one sandbox.
//!
//! It waits for one closed set of messages and for the one effect in progress; observations take
//! precedence over commands. It records before it acts. It makes no decisions: the lifecycle does.

mod answers;
mod attach;
mod background;
mod conflict;
mod data_disk;
mod egress;
mod reach;
pub(crate) mod record;
pub(crate) mod revival;
pub(crate) mod rewind;
mod unrecorded;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::Agent;
use dorm_lifecycle::{
    BackgroundWork, Command, Denied, Effect, EventKind, Initiator, Input, Keep, Observation, Outcome, RunId, Sandbox,
    SavedStateId, SnapshotKind, State, Step, step,
};
use dorm_store::{Made, OperationRecord, SandboxRecord, SnapshotRecord};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, InUse, Use};
use crate::asked_by::AskedBy;
use crate::effects::{self, Quiesced, Seen, Task};
use crate::error::{Failure, ServiceError, chain};
use crate::keyed::KeyedRequest;
use crate::messages::{AnswerAt, IfBusy, Manner, Message, Reply};
use crate::shared::{ActorHandle, Shared};
use crate::view::{Changed, Residence, SandboxView};

use conflict::{ATTEMPTS, Belongs, is_conflict};
use record::Recorded;

/// The records of the operation that a sandbox is in.
#[derive(Default)]
pub(crate) struct Open {
    pub(crate) operation: Option<OperationRecord>,
    /// The snapshot that it takes.
    pub(crate) snapshot: Option<SnapshotRecord>,
}

/// The first work of an actor.
pub(crate) enum First {
    /// Carry out an effect that is already recorded, and reply when it ends.
    Effect(Effect, Option<Reply<SandboxView>>),
    /// Reconnect to a live run.
    Adopt(RunId),
    /// Reconnect to a live run, then report the result of its background operation.
    AdoptThen(RunId, Observation),
    /// Reconnect to a live run, then carry out the effect of its background operation again.
    AdoptRedo(RunId, Effect),
    /// Let a run continue, then report.
    Continue(RunId, Observation),
    /// Report an observation.
    Report(Observation),
    /// Wait.
    Nothing,
}

/// The delay before relieving memory pressure is retried after a failure.
const RELIEVE_AGAIN: Duration = Duration::from_secs(1);

/// A caller that waits for the operation in progress.
pub(crate) enum Waiting {
    View(&'static str, Reply<SandboxView>),
    /// One that gave a command, and is told that it changed the sandbox.
    Command(&'static str, Reply<SandboxView>),
    Snapshot(Reply<SnapshotRecord>),
    /// One that is answered whether the operation succeeds or fails.
    Settled(Reply<()>),
}

pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) record: SandboxRecord,
    pub(crate) activity: Arc<Activity>,
    inbox: mpsc::UnboundedReceiver<Message>,
    agent: Option<Agent>,
    work: Option<BoxFuture<'static, Option<Seen>>>,
    /// Cancelled when the sandbox must be terminated as soon as the work ends.
    unwanted: CancellationToken,
    /// The attempts to reach a run that does not answer.
    reaching: reach::Reaching,
    /// Lets the agent of a run under memory pressure continue while an operation is in progress.
    memory_pressure: Option<BoxFuture<'static, ()>>,
    /// The saved state that the operation in progress writes.
    pub(crate) saved_state: Option<SavedStateId>,
    /// The record of the operation in progress.
    pub(crate) operation: Option<OperationRecord>,
    /// The record of the snapshot in progress.
    pub(crate) snapshot: Option<SnapshotRecord>,
    /// Who asked for the operation in progress.
    pub(crate) by: AskedBy,
    waiting: Vec<Waiting>,
    /// Why the awaited operation failed, while the sandbox is returned to its previous state.
    failure: Option<Failure>,
    /// When a process was last killed because of memory pressure.
    relieved: Option<tokio::time::Instant>,
    later: VecDeque<Message>,
    belongs: Belongs,
}

/// The mailbox of a sandbox. It is registered before the record of a new sandbox becomes visible,
/// so that every visible record has one.
pub(crate) struct Seat {
    inbox: mpsc::UnboundedReceiver<Message>,
    activity: Arc<Activity>,
}

impl Seat {
    pub(crate) fn take(shared: &Arc<Shared>, sandbox: &Sandbox) -> Self {
        let (mailbox, inbox) = mpsc::unbounded_channel();
        let activity = Activity::new(shared.clock.clone(), sandbox.last_active);
        let (project, image) = (sandbox.project.clone(), sandbox.spec.image.clone());
        shared.enter(&sandbox.id, ActorHandle { mailbox, project, image, activity: activity.clone() });
        Self { inbox, activity }
    }
}

impl Actor {
    /// Starts the task of `record`.
    pub(crate) fn spawn(shared: &Arc<Shared>, record: SandboxRecord, by: AskedBy, first: First, open: Open) {
        let seat = Seat::take(shared, &record.sandbox);
        Self::spawn_in(seat, shared, record, by, first, open);
    }

    /// Starts the task of `record`, whose mailbox may contain messages already.
    pub(crate) fn spawn_in(
        seat: Seat,
        shared: &Arc<Shared>,
        record: SandboxRecord,
        by: AskedBy,
        first: First,
        open: Open,
    ) {
        let Seat { inbox, activity } = seat;
        let Open { operation, snapshot } = open;
        shared.ledger.note(&record.sandbox);
        let actor = Self {
            shared: shared.clone(),
            record,
            activity,
            inbox,
            agent: None,
            work: None,
            unwanted: CancellationToken::new(),
            reaching: reach::Reaching::default(),
            memory_pressure: None,
            saved_state: operation.as_ref().and_then(OperationRecord::writes).cloned(),
            operation,
            snapshot,
            by,
            waiting: Vec::new(),
            failure: None,
            relieved: None,
            later: VecDeque::new(),
            belongs: Belongs::Yes,
        };
        shared.spawn(actor.live(first));
    }

    // Futures that are rarely awaited are boxed: the task of a suspended sandbox then takes 4 KiB
    // of memory instead of 17.
    async fn live(mut self, first: First) {
        Box::pin(self.begin_with(first)).await;
        loop {
            if self.belongs != Belongs::Yes {
                return Box::pin(self.leave()).await;
            }
            if self.work.is_none()
                && let Some(memory_pressure) = self.memory_pressure.take()
            {
                memory_pressure.await;
            }
            Box::pin(self.answer_later()).await;
            if matches!(self.record.sandbox.state, State::Terminated { .. }) && self.work.is_none() {
                break;
            }
            self.set_timer();
            self.seek();
            let stopping = self.shared.stopping.clone();
            let message = match &mut self.work {
                Some(work) => tokio::select! {
                    biased;
                    seen = work => {
                        self.work = None;
                        let Some(seen) = seen else { return };
                        Box::pin(self.observe(seen)).await;
                        continue;
                    }
                    () = over(&mut self.memory_pressure) => continue,
                    message = self.inbox.recv() => message,
                },
                None => tokio::select! {
                    biased;
                    () = stopping.cancelled() => return,
                    attempt = self.reaching.over() => {
                        Box::pin(self.reached(attempt)).await;
                        continue;
                    }
                    message = self.inbox.recv() => message,
                },
            };
            match message {
                Some(message) => Box::pin(self.handle(message)).await,
                None => return,
            }
        }
        self.shared.leave(&self.record.sandbox.id);
        // Requests that arrived in the meantime are answered with the final state.
        self.inbox.close();
        while let Some(message) = self.inbox.recv().await {
            Box::pin(self.handle(message)).await;
        }
    }

    async fn begin_with(&mut self, first: First) {
        match first {
            First::Nothing => {}
            First::Effect(effect, reply) => {
                self.waiting.extend(reply.map(|reply| Waiting::View("create", reply)));
                self.begin(effect);
            }
            First::Report(observation) => self.observe(Seen::of(observation)).await,
            First::Adopt(run) => self.adopt(&run).await,
            First::AdoptThen(run, report) => {
                self.adopt(&run).await;
                if self.record.sandbox.state.background().is_some() {
                    self.observe(Seen::of(report)).await;
                }
            }
            First::AdoptRedo(run, effect) => {
                self.adopt(&run).await;
                if matches!(self.record.sandbox.state, State::Running { .. }) {
                    self.begin(effect);
                }
            }
            First::Continue(run, report) => {
                let task = self.task();
                let seen = self.meanwhile(effects::continue_after_restart(&task, &run, report)).await;
                self.observe(seen).await;
            }
        }
    }

    async fn adopt(&mut self, run: &RunId) {
        let (task, patience) = (self.task(), self.shared.settings.agent);
        let attempt = self.meanwhile(effects::reach(&task, run, patience)).await;
        self.reached(attempt).await;
    }

    /// Waits for the first work of an actor, and keeps messages for later.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let message = tokio::select! {
                biased;
                done = &mut work => return done,
                () = over(&mut self.memory_pressure) => continue,
                Some(message) = self.inbox.recv() => message,
            };
            if let Message::MemoryHigh { run } = &message {
                self.unpause_under_pressure(run);
            }
            self.later.push_back(message);
        }
    }

    fn task(&self) -> Task {
        Task {
            shared: self.shared.clone(),
            sandbox: self.record.sandbox.clone(),
            agent: self.agent.clone(),
            saved_state: self.saved_state.clone(),
            kind: match (&self.record.sandbox.state, &self.snapshot) {
                (State::Snapshotting { .. } | State::Suspended { .. }, Some(snapshot)) => snapshot.kind,
                (State::Suspending { files: Some(_), .. }, _) => SnapshotKind::Filesystem,
                (_, _) => SnapshotKind::Memory,
            },
            unwanted: self.unwanted.clone(),
        }
    }

    fn begin(&mut self, effect: Effect) {
        self.unwanted = CancellationToken::new();
        let task = self.task();
        if !matches!(effect, Effect::Snapshot { .. }) && self.record.sandbox.state.background().is_none() {
            self.agent = None;
        }
        self.reaching.pause();
        self.work = Some(Box::pin(effects::carry_out(task, effect)));
    }

    /// Returns what an input leads to now.
    pub(crate) fn ask(&mut self, input: Input) -> Result<Step, Denied> {
        self.take_activity();
        step(&self.record.sandbox, &input, &self.shared.context())
    }

    async fn handle(&mut self, message: Message) {
        match message {
            Message::AtRevision { revision, message, .. } if revision == self.record.revision => {
                Box::pin(self.handle(*message)).await;
            }
            Message::AtRevision { changed, .. } => {
                let _ = changed.send(self.record.revision);
            }
            Message::Command { command, by, manner, request, reply } => {
                self.command(command, by, manner, (request, reply)).await;
            }
            Message::Snapshot { asked, reply } => self.take_snapshot(asked, reply).await,
            Message::Rewind { asked, reply } => self.rewind(asked, reply).await,
            Message::HeldSettled { reply } => self.held_settled(reply),
            Message::Settled { reply } if matches!(self.record.sandbox.state, State::Suspending { .. }) => {
                self.later.push_back(Message::Settled { reply });
            }
            Message::Settled { reply } => _ = reply.send(Ok(())),
            Message::Attachments { change, by, reply } => self.change_attachments(change, by, reply).await,
            Message::Use { what, reply } => self.lend(what, reply).await,
            Message::Unanswered { silent, what, reply } => self.unanswered(&silent, what, reply).await,
            Message::Evict { by, reply } => self.evict(by, reply).await,
            Message::RunEnded { run, reason } => self.run_ended(&run, reason).await,
            Message::MemoryHigh { run } => self.memory_high(run).await,
            Message::DiskLow => self.disk_low().await,
            Message::DiskRoom => self.disk_room().await,
            Message::Due => self.due().await,
        }
    }

    async fn answer_later(&mut self) {
        // Deferred messages would begin something; when the actor ends, their callers get an error.
        if self.work.is_some() || self.shared.stopping.is_cancelled() {
            return;
        }
        for message in std::mem::take(&mut self.later) {
            self.handle(message).await;
        }
    }

    async fn command(
        &mut self,
        command: Command,
        by: AskedBy,
        manner: Manner,
        (request, reply): (Option<Arc<KeyedRequest>>, Reply<SandboxView>),
    ) {
        let word = command_word(&command);
        let mut attempts = 0;
        loop {
            let made = match self.ask(Input::Command(command.clone())) {
                Ok(made) => made,
                Err(denied) => {
                    let sandbox = self.record.sandbox.id.clone();
                    let _ = reply.send(Err(ServiceError::Denied { operation: word, sandbox, denied }));
                    return;
                }
            };
            match made.outcome {
                Outcome::Wait if manner.if_busy == IfBusy::Refuse => {
                    return drop(reply.send(Err(self.busy(word))));
                }
                Outcome::Wait => {
                    if matches!(command, Command::Terminate) {
                        self.unwanted.cancel();
                    }
                    return self.later.push_back(Message::Command { command, by, manner, request, reply });
                }
                Outcome::Already => return drop(reply.send(Ok(self.answered(Changed::No)))),
                Outcome::Changed => {}
            }
            let effect = made.effect.clone();
            let made_by_it = match &command {
                Command::Hold(hold) => self.made(request.as_deref(), Made::Hold(hold.id.clone())),
                Command::Claim(_) => self.made(request.as_deref(), Made::Sandbox(self.record.sandbox.id.clone())),
                _ => None,
            };
            attempts += 1;
            match (self.record_command(made, by.clone(), made_by_it).await, effect) {
                (Ok(()), Some(effect)) => {
                    match manner.answer {
                        AnswerAt::End => self.waiting.push(Waiting::Command(word, reply)),
                        AnswerAt::Beginning => _ = reply.send(Ok(self.answered(Changed::Yes))),
                    }
                    return self.begin(effect);
                }
                (Ok(()), None) => return drop(reply.send(Ok(self.answered(Changed::Yes)))),
                (Err(error), _) => {
                    let is_decided_again = is_conflict(&error) && self.belongs == Belongs::Yes && attempts < ATTEMPTS;
                    if !is_decided_again {
                        return drop(reply.send(Err(error)));
                    }
                }
            }
        }
    }

    /// Returns the refusal of a command because of the operation in progress.
    fn busy(&self, word: &'static str) -> ServiceError {
        let sandbox = &self.record.sandbox;
        ServiceError::Busy {
            command: word,
            sandbox: sandbox.id.clone(),
            state: sandbox.state.name(),
            operation: sandbox.state.operation().map(ToString::to_string).unwrap_or_default(),
        }
    }

    async fn due(&mut self) {
        let Ok(made) = self.ask(Input::Command(Command::Expire)) else { return };
        match (made.outcome, made.effect.clone()) {
            (Outcome::Changed, Some(effect)) => {
                match self.record_command(made, Initiator::Timer.into(), None).await {
                    Ok(()) => self.begin(effect),
                    // The loop sets the timer again, and the deadline is still passed.
                    Err(error) => {
                        tracing::warn!(sandbox = %self.record.sandbox.id, error = %chain(&error), "cannot record a passed deadline; retrying");
                        self.shared.stops_within(Duration::from_millis(500)).await;
                    }
                }
            }
            (Outcome::Changed | Outcome::Already | Outcome::Wait, _) => {}
        }
    }

    async fn lend(&mut self, what: Use, reply: Reply<(Agent, InUse)>) {
        let state = self.record.sandbox.state.name();
        match &self.record.sandbox.state {
            // There is one connection at a time, and the operation in the background is making it.
            State::Running { background: Some(_), .. } if !self.has_agent() => {
                self.later.push_back(Message::Use { what, reply });
            }
            State::Running { .. } => match self.agent_to_lend().await {
                Ok(agent) => {
                    let _ = reply.send(Ok((agent, self.activity.begin(what))));
                }
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            },
            State::Pending { .. } | State::Snapshotting { .. } | State::Resuming { .. } => {
                self.later.push_back(Message::Use { what, reply });
            }
            State::Suspending { .. }
            | State::Suspended { .. }
            | State::Terminating { .. }
            | State::Terminated { .. } => {
                let sandbox = self.record.sandbox.id.clone();
                let _ = reply.send(Err(ServiceError::NotRunning { sandbox, state }));
            }
        }
    }

    async fn agent_to_lend(&mut self) -> Result<Agent, ServiceError> {
        self.shared.refuse_paused(&self.record.sandbox.id)?;
        self.agent_now().await
    }

    async fn agent_now(&mut self) -> Result<Agent, ServiceError> {
        if self.is_silent() {
            return Err(self.does_not_answer());
        }
        if let Some(agent) = self.agent.as_ref().filter(|agent| !agent.is_closed()) {
            return Ok(agent.clone());
        }
        let (task, run, patience) = (self.task(), self.record.sandbox.run_id(), self.shared.settings.agent);
        match self.beside(effects::connect(&task, &run, patience)).await {
            Ok(agent) => {
                self.agent = Some(agent.clone());
                Ok(agent)
            }
            Err(error) if error.says_that_the_run_is_over() => Err(error),
            Err(error) => {
                self.falls_silent(chain(&error)).await;
                Err(self.does_not_answer())
            }
        }
    }

    async fn run_ended(&mut self, run: &RunId, reason: String) {
        if *run != self.record.sandbox.run_id() {
            return;
        }
        if self.work.is_some() && !self.changes_run() {
            // The effect in progress may notice this and report it, and has more to undo than this.
            self.later.push_back(Message::RunEnded { run: run.clone(), reason });
            return;
        }
        let (task, patience) = (self.task(), self.shared.settings.agent);
        match self.beside(effects::is_over(&task, run, patience)).await {
            Ok(true) => {}
            // The notice is about an earlier process of this run, which has been restarted since.
            Ok(false) => return,
            Err(silent) if matches!(self.record.sandbox.state, State::Running { .. }) => {
                return self.falls_silent(silent).await;
            }
            Err(silent) => {
                // The next request to the run finds out what is true.
                return tracing::warn!(%run, reason, silent, "a paused run was reported as ended and could not be checked; it is left as it is");
            }
        }
        // No run is left whose volumes or egress could be changed.
        self.work = None;
        self.agent = None;
        self.shared.parking.leave(&self.record.sandbox.id);
        effects::end(&self.task(), run).await;
        self.observe(Seen::of(Observation::RunLost(reason))).await;
    }

    /// Handles memory pressure, for which the guest is paused. An operation in progress may need
    /// its agent, so the OOM victim is chosen when the operation ends.
    async fn memory_high(&mut self, run: RunId) {
        if self.work.is_some() && self.record.sandbox.state.background().is_none() {
            self.unpause_under_pressure(&run);
            self.later.push_back(Message::MemoryHigh { run });
        } else if self.shared.paused_for_disk.holds(&run.sandbox) {
            self.later.push_back(Message::MemoryHigh { run });
        } else if run == self.record.sandbox.run_id() && matches!(self.record.sandbox.state, State::Running { .. }) {
            self.relieve_memory_pressure(&run).await;
        }
    }

    fn unpause_under_pressure(&mut self, run: &RunId) {
        if self.memory_pressure.is_none() {
            self.memory_pressure = Some(Box::pin(effects::unpause_under_pressure(self.shared.clone(), run.clone())));
        }
    }

    async fn relieve_memory_pressure(&mut self, run: &RunId) {
        let now = tokio::time::Instant::now();
        let lately = match self.relieved {
            Some(at) if now.duration_since(at) < Duration::from_secs(5) => effects::Lately::Relieved,
            Some(_) | None => effects::Lately::Quiet,
        };
        let task = self.task();
        match self.beside(effects::relieve_memory_pressure(&task, run, lately)).await {
            Ok(Some(detail)) => {
                self.relieved = Some(tokio::time::Instant::now());
                tracing::info!(%run, detail, "memory pressure was relieved");
                self.note(EventKind::OomVictimKilled, Initiator::Host, Some(detail)).await;
            }
            Ok(None) => {}
            Err(failure) => {
                tracing::warn!(%run, reason = failure.reason(), "memory pressure could not be relieved; retrying");
                let (shared, run) = (self.shared.clone(), run.clone());
                self.shared.spawn(async move {
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep(RELIEVE_AGAIN) => {}
                        () = shared.stopping.cancelled() => return,
                    }
                    shared.tell(&run.sandbox.clone(), Message::MemoryHigh { run });
                });
            }
        }
    }

    async fn evict(&mut self, by: AskedBy, reply: Option<Reply<SandboxView>>) {
        if self.work.is_some() && !self.leaves_run_alone() {
            if let Some(reply) = reply {
                self.later.push_back(Message::Evict { by, reply: Some(reply) });
            }
            return;
        }
        let run = self.record.sandbox.run_id();
        let mut answer = Ok(());
        if self.residence() == Residence::Parked {
            let engine = self.shared.engine.clone();
            let stopped = tokio::time::timeout(effects::UNDO, engine.stop(&run));
            answer = match self.beside(stopped).await {
                Ok(stopped) => stopped.map_err(ServiceError::from),
                Err(_) => Err(self.failed("evict", Failure::late("ending its run", effects::UNDO))),
            };
            if answer.is_ok() {
                self.shared.parking.leave(&self.record.sandbox.id);
                self.settle_volumes();
                self.note(EventKind::Evicted, by, None).await;
            }
        }
        match reply {
            Some(reply) => {
                let _ = reply.send(answer.map(|()| self.view()));
            }
            None => {
                if let Err(error) = answer {
                    tracing::warn!(%run, error = %chain(&error), "a parked run could not be stopped");
                }
            }
        }
    }

    async fn observe(&mut self, seen: Seen) {
        let Seen { observation, agent, quiesced, silent, written, failure } = seen;
        match quiesced {
            Quiesced::Unasked => {}
            Quiesced::Yes => _ = self.note_reach(Observation::Reachable).await,
            Quiesced::No(reason) => _ = self.note_reach(Observation::Unreachable(reason)).await,
        }
        let background = self.record.sandbox.state.background().map(|background| background.work.clone());
        let recorded = self.record_observation(observation, failure, written).await;
        let Some(Recorded { observation, failure, effect }) = recorded else { return };
        let answers = agent.is_some() && background.is_none();
        // An agent that was connected in the meantime stays.
        let kept = self.agent.take().filter(|agent| background.is_some() && !agent.is_closed());
        self.agent = kept.or(agent);
        match silent {
            Some(reason) => self.falls_silent(reason).await,
            None if answers => self.answers().await,
            None => {}
        }
        if matches!(observation, Observation::Saved(_) | Observation::Woken { .. }) {
            self.activity.end_connections();
        }
        if let (Observation::Saved(image), None) = (&observation, &effect)
            && image.keeps() == Keep::Files
        {
            effects::end(&self.task(), &self.record.sandbox.run_id()).await;
        } else if let (Observation::Saved(_), None) = (&observation, &effect)
            && let Some(memory) = effects::park(&self.task(), &self.record.sandbox.run_id()).await
        {
            let evict = self.shared.parking.enter(&self.record.sandbox.id, self.shared.now(), memory);
            revival::evict_all(&self.shared, evict);
        }
        if !matches!(self.record.sandbox.state, State::Suspended { .. }) {
            self.shared.parking.leave(&self.record.sandbox.id);
        }
        self.settle_volumes();
        match background {
            Some(BackgroundWork::Attach { .. }) => self.volumes_changed(&observation).await,
            Some(BackgroundWork::Egress { .. } | BackgroundWork::Resize { .. }) => self.parked_run_changed().await,
            Some(BackgroundWork::SaveHeld(held)) if self.record.sandbox.state.held().is_none() => self.end_held(&held),
            Some(BackgroundWork::PrepareRewind(_) | BackgroundWork::Snapshot(_) | BackgroundWork::SaveHeld(_))
            | None => {}
        }
        // The sandbox may have been the last user of a snapshot or an image.
        self.shared.removals.poke();
        if matches!(self.record.sandbox.state, State::Terminated { .. }) {
            self.shared.references.poke();
        }
        match effect {
            // No caller waits until the held run is saved.
            Some(effect @ Effect::SaveHeld { .. }) => {
                self.answer(failure);
                self.begin(effect);
            }
            Some(effect) => {
                self.failure = self.failure.take().or(failure);
                self.begin(effect);
            }
            None => {
                self.operation = None;
                self.answer(failure);
            }
        }
    }

    /// Settles volumes after a change that may have released the sandbox's leases.
    fn settle_volumes(&self) {
        let sandbox = &self.record.sandbox;
        if !sandbox.spec.attachments.is_empty() && !dorm_lifecycle::has_leases(&sandbox.state) {
            self.shared.settle_volumes();
        }
    }

    fn set_timer(&mut self) {
        let mut sandbox = self.record.sandbox.clone();
        // As the decision will see it: a timer that repeatedly fires too early would use up the
        // CPU.
        sandbox.last_active = sandbox.last_active.max(self.activity.last());
        let after = sandbox.expires().map(|expires| expires.since(self.shared.now()));
        self.shared.timers.set(&sandbox.id, after);
        self.shared.checkpointing.follow(&sandbox, self.shared.now());
    }

    fn take_activity(&mut self) {
        self.record.sandbox.last_active = self.record.sandbox.last_active.max(self.activity.last());
    }

    pub(crate) fn residence(&self) -> Residence {
        self.shared.residence(&self.record.sandbox)
    }

    pub(crate) fn view(&self) -> SandboxView {
        self.shared.view(&self.record)
    }

    /// Returns the sandbox after a command.
    fn answered(&self, changed: Changed) -> SandboxView {
        SandboxView { changed: Some(changed), ..self.view() }
    }
}

/// Waits until the handling of memory pressure in progress ends; without one, forever.
async fn over(memory_pressure: &mut Option<BoxFuture<'static, ()>>) {
    match memory_pressure {
        Some(going) => going.await,
        None => std::future::pending().await,
    }
    *memory_pressure = None;
}

fn command_word(command: &Command) -> &'static str {
    match command {
        Command::Suspend(_) => "suspend",
        Command::Resume { .. } => "resume",
        Command::Wake => "wake",
        Command::Extend(_) => "extend the time of",
        Command::Update(_) => "change",
        Command::Claim(_) => "claim",
        Command::Discard => "discard",
        Command::Snapshot(..) => "snapshot",
        Command::Rewind(_) => "rewind",
        Command::SetTimeouts(_) => "set the timeouts of",
        Command::SetRetention(_) => "change the sleep image settings of",
        Command::SetCheckpoints(_) => "set the checkpoint policy of",
        Command::SetAttachments(_) => "change the volumes of",
        Command::SetEgress(_) => "change the egress of",
        Command::Resize(_) => "resize",
        Command::Hold(_) => "hold",
        Command::Release(_) => "release",
        Command::Touch => "touch",
        Command::Expire => "expire",
        Command::Terminate => "terminate",
    }
}
