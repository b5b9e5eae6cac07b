//! One simulation run: lives of the daemon, one after another. Each begins with a recovery and is
//! checked once quiet.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_steps::Steps as _;
use tokio::task::JoinSet;

use crate::check;
use crate::client::{Action, Client};
use crate::model::{Misfortune, caller};
use crate::random::Random;
use crate::steps::{Coverage, Doubt, Ending, Life};
use crate::world::{Daemon, World};

/// How long all callers together may take; after that something is stuck.
const CALLERS: Duration = Duration::from_secs(4 * 3600);

/// The counts of a simulation run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Daemons that were started.
    pub daemons: u64,
    /// Daemons that died at a step or between two.
    pub deaths: u64,
    /// Losses of power.
    pub power_losses: u64,
    /// Faults of engines that took effect.
    pub faults: u64,
    /// Sandboxes that were created.
    pub sandboxes: u64,
    /// Events that were recorded.
    pub events: u64,
    /// Counts of the steps that were reached, died at, or failed at.
    pub coverage: Coverage,
}

impl Figures {
    /// Adds the counts of another simulation run.
    pub fn add(&mut self, other: &Self) {
        let Self { daemons, deaths, power_losses, faults, sandboxes, events, coverage } = other;
        self.daemons += daemons;
        self.deaths += deaths;
        self.power_losses += power_losses;
        self.faults += faults;
        self.sandboxes += sandboxes;
        self.events += events;
        add_coverage(&mut self.coverage, coverage);
    }
}

fn add_coverage(to: &mut Coverage, from: &Coverage) {
    for (step, visits) in from {
        let all = to.entry(step).or_default();
        all.reached += visits.reached;
        all.died += visits.died;
        all.failed += visits.failed;
    }
}

/// The planned size and faults of a simulation run.
pub(crate) struct Plan {
    pub(crate) misfortune: Misfortune,
    lives: u64,
    callers: u64,
    actions: u64,
    power: u64,
}

impl Plan {
    pub(crate) fn new(random: &mut Random) -> Self {
        let misfortune = if random.chance(35) { Misfortune::OnlyDeaths } else { Misfortune::Any };
        Self {
            misfortune,
            lives: 1 + random.below(4),
            callers: 1 + random.below(3),
            actions: 3 + random.below(12),
            power: if misfortune == Misfortune::Any { 40 } else { 0 },
        }
    }
}

/// A simulation run in progress.
pub(crate) struct Simulation {
    pub(crate) world: Arc<World>,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) figures: Figures,
}

impl Simulation {
    pub(crate) async fn execute(mut self) -> Result<Figures> {
        for _ in 0..self.plan.lives {
            let Some(daemon) = self.recover().await? else { break };
            self.live(daemon).await?;
            if self.world.trace.is_wrong() {
                break;
            }
        }
        if !self.world.trace.is_wrong()
            && let Some(daemon) = self.recover().await?
        {
            self.look_into_everything(daemon).await?;
        }
        let faults = self.world.host.faults();
        self.figures.faults = Operation::ALL.iter().map(|operation| faults.struck(*operation)).sum();
        self.figures.sandboxes = self.world.model.all().len() as u64;
        self.figures.events = self.world.model.events().len() as u64;
        Ok(self.figures)
    }

    /// Starts daemons until one has finished all pending work. Some of them die or fail first.
    async fn recover(&mut self) -> Result<Option<Daemon>> {
        self.world.host.faults().clear();
        self.world.host.faults().release();
        self.world.host.let_all_answer();
        self.set_clock_meanwhile();
        while self.random.chance(35) {
            let life = self.world.life();
            let nth = 1 + self.random.below(12);
            let ending = self.ending();
            life.plan(nth, ending);
            self.plan_doubt(&life);
            if self.plan.misfortune == Misfortune::Any && self.random.chance(30) {
                self.plan_fault();
            }
            self.world.trace.note("a daemon starts, not for long");
            self.figures.daemons += 1;
            let opened = self.world.open(Arc::clone(&life), &mut self.random).await?;
            match opened {
                None => {}
                Some(Ok(_)) => tokio::time::sleep(Duration::from_millis(self.random.below(200))).await,
                Some(Err(error)) => self.world.trace.note(format_args!("it did not start: {}", error.message())),
            }
            self.die(&life)?;
            self.set_clock_meanwhile();
        }
        self.world.host.faults().clear();
        self.world.host.faults().release();
        self.world.host.let_all_answer();
        self.world.trace.note("a daemon starts");
        self.figures.daemons += 1;
        let life = self.world.life();
        match self.world.open(life, &mut self.random).await? {
            Some(Ok(daemon)) => {
                for line in &daemon.report.lines {
                    self.world.trace.note(format_args!("recovery: {line}"));
                }
                check::is_sound(&self.world).await?;
                Ok(if self.world.trace.is_wrong() { None } else { Some(daemon) })
            }
            Some(Err(error)) => {
                self.world.trace.wrong(format_args!("a daemon cannot start: {}", error.message()));
                Ok(None)
            }
            None => {
                self.world.trace.wrong("a daemon died for no reason");
                Ok(None)
            }
        }
    }

    /// Sometimes the wall clock is set while there is no daemon.
    fn set_clock_meanwhile(&mut self) {
        if self.random.chance(15) {
            let by = self.world.choose_clock(&mut self.random);
            self.world.trace.note(format_args!("the clock is set by {by} ms meanwhile"));
            self.world.clock.set_by(by);
        }
    }

    /// Runs callers until they are done or the daemon dies.
    async fn live(&mut self, daemon: Daemon) -> Result<()> {
        self.plan_misfortune(&daemon.life);
        let mut callers = JoinSet::new();
        for number in 0..self.plan.callers {
            let client = Client {
                number,
                service: daemon.service.as_caller(Some(caller(number))),
                world: Arc::clone(&self.world),
                random: self.random.fork(),
            };
            callers.spawn(client.live(self.plan.actions));
        }
        let all = async {
            while let Some(ended) = callers.join_next().await {
                ended.context("a caller")?;
            }
            anyhow::Ok(())
        };
        // Sometimes the daemon is stopped in the middle of everything, with a short time limit.
        let hasty = self.random.chance(15).then(|| Duration::from_millis(self.random.below(300)));
        let left = tokio::select! {
            biased;
            () = daemon.life.ended() => None,
            () = tokio::time::sleep(hasty.unwrap_or_default()), if hasty.is_some() => None,
            all = tokio::time::timeout(CALLERS, all) => Some(all),
        };
        let is_hasty = hasty.is_some() && left.is_none();
        match left {
            None => {}
            Some(Ok(all)) => all?,
            Some(Err(_)) => self.world.trace.wrong("callers wait for ever"),
        }
        callers.shutdown().await;
        if is_hasty {
            self.stop_hastily(&daemon).await;
            return self.die(&daemon.life);
        }
        if daemon.life.alive() {
            self.look_at_the_living(&daemon).await?;
        }
        if daemon.life.alive() && self.random.chance(30) {
            self.stop(&daemon).await;
        }
        self.die(&daemon.life)
    }

    /// Checks a daemon that still lives, with no more faults planned. Only the next daemon clears
    /// away the effects of faults, so the full check is made only where there were none.
    async fn look_at_the_living(&mut self, daemon: &Daemon) -> Result<()> {
        daemon.life.forgive();
        self.world.host.faults().clear();
        self.world.host.faults().release();
        self.world.host.let_all_answer();
        match self.plan.misfortune {
            Misfortune::OnlyDeaths => check::is_sound(&self.world).await,
            Misfortune::Any => {
                check::nobody_stands_still(&self.world).await;
                Ok(())
            }
        }
    }

    /// Stops a daemon in the regular way.
    async fn stop(&mut self, daemon: &Daemon) {
        self.world.trace.note("the daemon is stopped");
        let stopped = tokio::select! {
            biased;
            () = daemon.life.ended() => return,
            stopped = tokio::time::timeout(CALLERS, daemon.service.stop()) => stopped,
        };
        if stopped.is_err() {
            self.world.trace.wrong("the daemon does not stop");
        }
    }

    /// Stops a daemon with little time for pending work.
    async fn stop_hastily(&mut self, daemon: &Daemon) {
        let limit = Duration::from_millis(self.random.below(60));
        self.world.trace.note(format_args!("the daemon is stopped within {limit:?}"));
        let stopped = tokio::select! {
            biased;
            () = daemon.life.ended() => return,
            stopped = tokio::time::timeout(CALLERS, daemon.service.stop_within(limit)) => stopped,
        };
        match stopped {
            Ok(left) => left.iter().for_each(|line| self.world.trace.note(format_args!("left: {line}"))),
            Err(_) => self.world.trace.wrong("the daemon does not stop within its limit"),
        }
    }

    /// Ends a life at once, and sometimes cuts the host's power too.
    fn die(&mut self, life: &Arc<Life>) -> Result<()> {
        life.end();
        self.figures.deaths += 1;
        add_coverage(&mut self.figures.coverage, &life.coverage());
        if self.random.chance(self.plan.power) {
            self.world.trace.note("the power fails");
            self.figures.power_losses += 1;
            self.world.lose_power(&mut self.random)?;
        } else {
            self.world.trace.note("the daemon is dead");
        }
        Ok(())
    }

    fn ending(&mut self) -> Ending {
        match self.plan.misfortune {
            Misfortune::OnlyDeaths => Ending::Dies,
            Misfortune::Any if self.random.chance(60) => Ending::Dies,
            Misfortune::Any if self.random.chance(50) => Ending::Fails,
            Misfortune::Any => Ending::Full,
        }
    }

    fn plan_misfortune(&mut self, life: &Arc<Life>) {
        let most = 4 + self.plan.callers * self.plan.actions * 5;
        if self.random.chance(80) {
            let nth = 1 + self.random.below(most);
            life.plan(nth, Ending::Dies);
        }
        self.plan_doubt(life);
        if self.plan.misfortune == Misfortune::OnlyDeaths {
            return;
        }
        for _ in 0..self.random.below(4) {
            let nth = 1 + self.random.below(most);
            let ending = if self.random.chance(50) { Ending::Fails } else { Ending::Full };
            life.plan(nth, ending);
        }
        for _ in 0..self.random.below(4) {
            self.plan_fault();
        }
    }

    /// Sometimes lets the store hide how commits ended. A commit that was not made fails its
    /// operation, which only a simulation run with any misfortune allows.
    fn plan_doubt(&mut self, life: &Life) {
        if self.random.chance(40) {
            let percent = 1 + self.random.below(20);
            life.plan_doubt(Doubt { percent, may_fail: self.plan.misfortune == Misfortune::Any });
        }
    }

    fn plan_fault(&mut self) {
        let Some(operation) = self.random.pick(&Operation::ALL).copied() else { return };
        let moment = if self.random.chance(50) { Moment::Before } else { Moment::After };
        let fault = match self.random.below(24) {
            0..6 => Fault::Fail,
            6..9 => Fault::NoRoom,
            9..12 => Fault::Hang,
            12..15 => Fault::Delay(Duration::from_millis(self.random.below(30_000))),
            15..17 => Fault::Die,
            17..19 => Fault::Lose,
            19..23 => Fault::Silence(Duration::from_secs(1 + self.random.below(120))),
            _ => Fault::WriteShort,
        };
        let nth = 1 + self.random.below(6);
        // Faults often repeat.
        let times = if self.random.chance(25) { 1 + self.random.below(6) } else { 1 };
        self.world.trace.note(format_args!("planned: {operation:?} {nth}, {times} times, {moment:?} {fault:?}"));
        for time in 0..times {
            self.world.host.faults().plan(operation, nth + time, moment, fault);
        }
    }

    /// Resumes every sandbox at the end and checks that it holds its acknowledged data.
    async fn look_into_everything(&mut self, daemon: Daemon) -> Result<()> {
        let mut client = Client {
            number: 9,
            service: daemon.service.as_caller(Some(caller(9))),
            world: Arc::clone(&self.world),
            random: self.random.fork(),
        };
        for pool in self.world.model.pools() {
            // A member that is resumed without a claim would be suspended again.
            if let Some(number) = pool.strip_prefix("pool-").and_then(|number| number.parse().ok()) {
                client.insist(&Action::RemovePool(number)).await;
            }
        }
        check::is_sound(&self.world).await?;
        for id in self.world.model.living() {
            client.probe(&id).await;
        }
        check::is_sound(&self.world).await?;
        self.stop(&daemon).await;
        daemon.life.end();
        Ok(())
    }
}
