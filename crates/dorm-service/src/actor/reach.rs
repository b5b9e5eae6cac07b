//! Handles a run that does not answer: it is recorded as unreachable, and attempts to reach it are
//! repeated with growing delays until it answers, its process ends, or the configured limit passes.
//! The attempt is part of what the actor waits for, so it ends with the daemon and with the next
//! operation.

use std::time::Duration;

use dorm_agent_client::Agent;
use dorm_lifecycle::{Initiator, Observation, State};
use dorm_store::Change;
use futures_util::future::BoxFuture;

use super::Actor;
use super::record::Measured;
use crate::activity::{InUse, Use};
use crate::effects::{self, Reason, Seen, Unreached};
use crate::error::{ServiceError, chain};
use crate::messages::{Message, Reply};

/// The delay between the first and the second attempt; it doubles with each further attempt.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest delay between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The longest time that one attempt waits for an answer. Each attempt waits longer than the last;
/// since the agent answers as soon as it can, a silence of any length costs few attempts and ends
/// without delay.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

pub(super) type Attempt = Result<Agent, Unreached>;

/// The state of the attempts to reach a run that does not answer.
#[derive(Default)]
pub(super) struct Reaching {
    /// The reason why the run is not reached, if it is not.
    silent: Option<Reason>,
    /// The number of failed attempts.
    attempts: u32,
    going: Option<BoxFuture<'static, Attempt>>,
}

impl Reaching {
    /// Waits for the attempt in progress; without one, forever.
    pub(super) async fn over(&mut self) -> Attempt {
        let Some(going) = &mut self.going else { return std::future::pending().await };
        let attempt = going.await;
        self.going = None;
        attempt
    }

    /// Drops the attempt in progress, because an operation on the run starts.
    pub(super) fn pause(&mut self) {
        self.going = None;
    }
}

impl Actor {
    /// Starts the next attempt if one is due, and drops an attempt that is not needed.
    pub(super) fn seek(&mut self) {
        if !self.record.sandbox.state.has_run() {
            self.reaching = Reaching::default();
        }
        // A run that is paused because the disk is full continues when there is room, and answers
        // then.
        let waits = self.shared.paused_for_disk.holds(&self.record.sandbox.id);
        let runs = matches!(self.record.sandbox.state, State::Running { .. }) && self.work.is_none() && !waits;
        if !runs || self.reaching.silent.is_none() {
            return self.reaching.pause();
        }
        if self.reaching.going.is_some() {
            return;
        }
        let doubled = |first: Duration, most: Duration| {
            first.saturating_mul(1 << self.reaching.attempts.saturating_sub(1).min(16)).min(most)
        };
        let wait = doubled(FIRST_WAIT, LONGEST_WAIT).min(self.left().unwrap_or(Duration::MAX));
        let patience = doubled(self.shared.settings.agent, LONGEST_PATIENCE.max(self.shared.settings.agent));
        // An attempt must not outlast the time that the run may be unreachable.
        let patience = patience.min(self.left().map_or(Duration::MAX, |left| left.max(FIRST_WAIT)));
        let (task, run) = (self.task(), self.record.sandbox.run_id());
        self.reaching.going = Some(Box::pin(async move {
            tokio::time::sleep(wait).await;
            effects::reach(&task, &run, patience).await
        }));
    }

    /// Returns how long the run may still be unreachable before it is ended; `None` without a
    /// limit.
    fn left(&self) -> Option<Duration> {
        let max = self.shared.settings.max_unreachable?;
        let since = self.record.sandbox.unreachable.as_ref().map(|silent| silent.since)?;
        Some(max.saturating_sub(self.shared.now().since(since)))
    }

    /// Handles the result of an attempt.
    pub(super) async fn reached(&mut self, attempt: Attempt) {
        match attempt {
            Ok(agent) => {
                self.agent = Some(agent);
                self.answers().await;
            }
            Err(Unreached::Silent(reason)) => {
                self.agent = None;
                self.falls_silent(reason).await;
                if self.left() == Some(Duration::ZERO) {
                    let given_up = "it was unreachable for longer than --max-unreachable allows";
                    self.give_up(given_up.to_owned()).await;
                }
            }
            Err(Unreached::Over(reason)) => self.give_up(reason).await,
        }
    }

    /// Ends the run, or cleans up after it.
    async fn give_up(&mut self, reason: Reason) {
        self.agent = None;
        let run = self.record.sandbox.run_id();
        effects::end(&self.task(), &run).await;
        self.observe(Seen::of(Observation::RunLost(reason))).await;
    }

    /// Records that the agent has answered.
    pub(super) async fn answers(&mut self) {
        let was_silent = std::mem::take(&mut self.reaching).silent;
        if !self.note_reach(Observation::Reachable).await {
            // Another attempt follows, and its result is recorded.
            self.reaching.silent = was_silent;
        }
    }

    /// Records that the agent has not answered.
    pub(super) async fn falls_silent(&mut self, reason: Reason) {
        self.reaching.attempts = self.reaching.attempts.saturating_add(1);
        self.reaching.silent = Some(reason.clone());
        tracing::warn!(sandbox = %self.record.sandbox.id, attempts = self.reaching.attempts, reason, "a run does not answer; it is kept, and the attempt is repeated");
        self.note_reach(Observation::Unreachable(reason)).await;
    }

    /// Schedules attempts to reach a run that did not answer while something else is being recorded
    /// about it.
    pub(super) fn remember_silence(&mut self, silent: Option<Reason>) {
        if silent.is_some() {
            self.reaching.silent = silent;
        }
    }

    /// Records whether the run answers, if the record does not say so yet. Returns whether the
    /// record is up to date.
    pub(super) async fn note_reach(&mut self, observation: Observation) -> bool {
        let Some(made) = self.changes(observation) else { return true };
        match self.commit(made, Change::default(), Initiator::Host.into(), Measured::default()).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(sandbox = %self.record.sandbox.id, error = %chain(&error), "cannot record whether a run answers");
                false
            }
        }
    }

    /// Handles the report of a caller that the agent it was lent did not answer.
    pub(super) async fn unanswered(&mut self, silent: &Agent, what: Use, reply: Reply<(Agent, InUse)>) {
        if let Err(paused) = self.shared.refuse_paused(&self.record.sandbox.id) {
            let _ = reply.send(Err(paused));
            return;
        }
        let same = self.agent.as_ref().is_some_and(|agent| agent.is_same(silent));
        if same && matches!(self.record.sandbox.state, State::Running { .. }) && self.work.is_none() {
            self.falls_silent(effects::late("its agent", self.shared.settings.agent)).await;
            let _ = reply.send(Err(self.does_not_answer()));
        } else {
            self.later.push_back(Message::Use { what, reply });
        }
    }

    /// Returns whether the run does not answer, so that no agent can be lent.
    pub(super) fn is_silent(&self) -> bool {
        self.reaching.silent.is_some()
    }

    pub(super) fn does_not_answer(&self) -> ServiceError {
        let sandbox = &self.record.sandbox;
        let now = self.shared.now();
        let since = sandbox.unreachable.as_ref().map_or(now, |silent| silent.since);
        ServiceError::Unreachable {
            sandbox: sandbox.id.clone(),
            since,
            silent: now.since(since),
            reason: self.reaching.silent.clone().unwrap_or_default(),
        }
    }
}
