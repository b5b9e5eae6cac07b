//! A caller: sends random requests, sometimes gives up early, and checks every answer.

mod actions;
mod builds;
mod environments;
mod inside;
mod pools;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{
    BuildId, Egress, EgressDefault, EgressRules, FirstProgram, HTTPS_PORT, HeaderRule, OnUnrestorable, PortAccess,
    PortRule, ProjectId, Resize, SandboxId, SleepRetention, SnapshotId, SnapshotKind, Timeouts, Update, Wake,
};
use dorm_service::{Code, KeepFuture, Service, ServiceError};
use dorm_store::OnPartialFailure;

use actions::named;

use crate::model::{Making, Misfortune, Wanted};
use crate::random::Random;
use crate::world::{Guests, World};

/// Every request is answered within this time, however slow everything is.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An action of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Create {
        name: Option<u64>,
        timeouts: Timeouts,
        snapshot: Option<SnapshotId>,
        program: Option<FirstProgram>,
    },
    Clone(SandboxId, Option<u64>),
    Fork(SandboxId, Vec<Option<u64>>, OnPartialFailure),
    Suspend(SandboxId),
    SuspendFiles(SandboxId),
    Resize(SandboxId, Resize),
    Resume(SandboxId),
    Checkpoint(SandboxId, SnapshotKind),
    CheckpointFor(SandboxId, SnapshotKind, Duration),
    DeleteSnapshot(SnapshotId),
    Rewind(SandboxId, SnapshotId, KeepFuture),
    Restart(SandboxId),
    Promote(SandboxId),
    Evict(SandboxId),
    SetTimeouts(SandboxId, Timeouts),
    Extend(SandboxId, Duration),
    Update(SandboxId, Update),
    SetRetention(SandboxId, SleepRetention),
    SetEgress(SandboxId, Egress),
    Hold(SandboxId, Duration),
    Terminate(SandboxId),
    Count(SandboxId),
    Write(SandboxId),
    Read(SandboxId),
    Run(SandboxId),
    Serve(SandboxId),
    Supervise(SandboxId),
    Eat(SandboxId),
    Reach(SandboxId),
    Look(SandboxId),
    List,
    SetClock(i64),
    Kill(SandboxId),
    /// A volume with this number, and whether it allows many writers.
    MakeVolume(u64, bool),
    /// A pool with this number, and how many wait in it.
    MakePool(u64, u64),
    ResizePool(u64, u64, Option<u64>),
    RemovePool(u64),
    Claim(u64),
    Attach(SandboxId, u64),
    Detach(SandboxId, u64),
    Build(Making),
    CancelBuild(BuildId),
    AwaitBuild(BuildId),
    CreateFromTemplate(u64),
    Ensure(Wanted),
    CancelEnvironment(u64),
    RemoveEnvironment(u64),
    ReleaseEnvironment(u64),
    /// Terminates the sandbox of an environment.
    EndEnvironment(u64),
    /// Suspends the sandbox of an environment.
    SuspendEnvironment(u64),
}

/// One caller.
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) service: Service,
    pub(crate) world: Arc<World>,
    pub(crate) random: Random,
}

impl Client {
    /// Carries out this many actions.
    pub(crate) async fn live(mut self, actions: u64) {
        for _ in 0..actions {
            if self.world.trace.is_wrong() {
                return;
            }
            let pause = self.random.below(12);
            if pause > 6 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let action = self.choose();
            self.note(format_args!("{action:?}"));
            if self.random.chance(20) {
                let patience = Duration::from_millis(self.random.below(40));
                if tokio::time::timeout(patience, self.carry_out(&action)).await.is_ok() {
                    continue;
                }
                self.note("asks again");
            }
            self.insist(&action).await;
        }
    }

    /// Carries out one action to its end.
    pub(crate) async fn insist(&mut self, action: &Action) {
        if tokio::time::timeout(PATIENCE, self.carry_out(action)).await.is_err() {
            self.world.trace.wrong(format_args!("caller {} got no answer to {action:?}", self.number));
        }
    }

    fn choose(&mut self) -> Action {
        let living = self.world.model.living();
        let few = living.len() < 2;
        let Some(id) = self.random.pick(&living).cloned() else { return self.choose_create() };
        let snapshots = self.world.model.snapshots();
        let name = self.random.chance(70).then(|| self.random.below(6));
        if self.world.is_building && self.random.chance(20) {
            return self.choose_build();
        }
        if self.world.is_ensuring && self.random.chance(25) {
            return self.choose_environment();
        }
        match self.random.below(100) {
            0..12 if living.len() < 6 => self.choose_create(),
            12..20 if few => self.choose_create(),
            0..14 => Action::Suspend(id),
            14..18 => Action::SuspendFiles(id),
            18..32 => Action::Resume(id),
            32..36 => self.choose_checkpoint(id, SnapshotKind::Memory),
            36..40 => self.choose_checkpoint(id, SnapshotKind::Filesystem),
            40..43 if living.len() < 6 => Action::Clone(id, name),
            43..47 => match self.random.pick(&snapshots) {
                Some(snapshot) => Action::DeleteSnapshot(snapshot.clone()),
                None => Action::Checkpoint(id, SnapshotKind::Memory),
            },
            47..50 => Action::Evict(id),
            50 => Action::Resize(id, self.choose_resize()),
            51..53 => Action::SetTimeouts(id, self.choose_timeouts()),
            53 => Action::Extend(id, Duration::from_millis(1 + self.random.below(5000))),
            54 => Action::Hold(id, Duration::from_millis(1 + self.random.below(5000))),
            55 => Action::SetRetention(id, self.choose_retention()),
            56 => Action::Update(id, self.choose_update()),
            57..60 => Action::Terminate(id),
            60..66 => Action::Count(id),
            66..72 => self.choose_volume(id),
            72..76 => Action::Write(id),
            76..78 => self.choose_rewind(id, &snapshots),
            78 => self.choose_restart(id),
            79 => Action::Promote(id),
            80 => Action::SetEgress(id, self.choose_egress()),
            81..84 => Action::Read(id),
            84..86 => Action::Run(id),
            86 => Action::Serve(id),
            87 => Action::Supervise(id),
            88..90 => Action::Reach(id),
            90 if self.world.guests == Guests::MemoryPressure => Action::Eat(id),
            90..93 => Action::Look(id),
            93 if self.world.guests == Guests::MemoryPressure && living.len() < 6 => self.choose_fork(id),
            93 => Action::List,
            94 if living.len() < 6 || self.random.chance(30) => self.choose_pool(),
            94 => Action::List,
            95..97 => Action::SetClock(self.world.choose_clock(&mut self.random)),
            97..100 if self.world.model.misfortune() == Misfortune::Any => Action::Kill(id),
            _ => Action::Count(id),
        }
    }

    fn choose_create(&mut self) -> Action {
        let snapshots = self.world.model.snapshots();
        let name = self.random.chance(75).then(|| self.random.below(6));
        let timeouts = self.choose_timeouts();
        let snapshot = if self.random.chance(40) { self.random.pick(&snapshots).cloned() } else { None };
        let starts = snapshot.is_none() && self.random.chance(30);
        let program = starts.then_some(FirstProgram::OfImage);
        Action::Create { name, timeouts, snapshot, program }
    }

    fn choose_checkpoint(&mut self, id: SandboxId, kind: SnapshotKind) -> Action {
        if self.random.chance(40) {
            let days = 10 + self.random.below(300);
            return Action::CheckpointFor(id, kind, Duration::from_secs(days * 86_400));
        }
        Action::Checkpoint(id, kind)
    }

    fn choose_rewind(&mut self, id: SandboxId, snapshots: &[SnapshotId]) -> Action {
        let keep = match self.random.below(3) {
            0 => KeepFuture::For(Duration::from_millis(1 + self.random.below(20_000))),
            1 => KeepFuture::UntilDeleted,
            _ => KeepFuture::Not,
        };
        match self.random.pick(snapshots) {
            Some(snapshot) => Action::Rewind(id, snapshot.clone(), keep),
            None => Action::Checkpoint(id, SnapshotKind::Memory),
        }
    }

    fn choose_restart(&mut self, id: SandboxId) -> Action {
        let living = self.world.model.living();
        let over: Vec<_> = self.world.model.all().into_iter().filter(|id| !living.contains(id)).collect();
        match self.random.pick(&over) {
            Some(over) if living.len() < 6 => Action::Restart(over.clone()),
            Some(_) | None => Action::Promote(id),
        }
    }

    fn choose_fork(&mut self, id: SandboxId) -> Action {
        let on_partial_failure =
            if self.random.chance(50) { OnPartialFailure::RollBack } else { OnPartialFailure::Keep };
        let count = 1 + self.random.below(4);
        let first = self.random.below(6);
        let names = (0..count).map(|number| self.random.chance(30).then_some((first + number) % 6)).collect();
        Action::Fork(id, names, on_partial_failure)
    }

    fn choose_update(&mut self) -> Update {
        let name = self.random.below(12);
        let public = PortRule { access: Some(PortAccess::Public), host: None };
        Update {
            name: named((name < 6).then_some(name)),
            wake: Some(*self.random.pick(&Wake::ALL).unwrap_or(&Wake::Traffic)),
            port_access: self.random.chance(30).then_some(PortAccess::Private),
            port_rules: [(8080, self.random.chance(50).then_some(public))].into(),
            labels: [("number".to_owned(), self.random.chance(50).then(|| name.to_string()))].into(),
            ..Update::default()
        }
    }

    fn choose_resize(&mut self) -> Resize {
        Resize {
            cpu_millis: self
                .random
                .chance(50)
                .then(|| 500 + 500 * u32::try_from(self.random.below(4)).unwrap_or_default()),
            memory_bytes: self.random.chance(70).then(|| (512 << 20) * (1 + self.random.below(3))),
        }
    }

    fn choose_egress(&mut self) -> Egress {
        match self.random.below(4) {
            0 => Egress::Public,
            1 => Egress::closed(),
            2 => {
                let name = format!("x-{}", self.random.below(3));
                let (host, value) = ("api.example.com".to_owned(), "Bearer {TOKEN}".to_owned());
                let header = HeaderRule { host, port: HTTPS_PORT, name, value, project: ProjectId::local() };
                Egress::Rules(EgressRules { rules: Vec::new(), default: EgressDefault::Public, headers: vec![header] })
            }
            _ => Egress::Allow(vec![format!("198.51.100.{}", self.random.below(256))]),
        }
    }

    fn choose_timeouts(&mut self) -> Timeouts {
        let mut limit = |per_cent| {
            let length = Duration::from_millis(50 + self.random.below(20_000));
            self.random.chance(per_cent).then_some(length)
        };
        Timeouts { total: limit(10), idle: limit(20), after_wake: limit(20), max_run: limit(5) }
    }

    fn choose_retention(&mut self) -> SleepRetention {
        let generations = 1 + u32::try_from(self.random.below(3)).unwrap_or_default();
        let fresh = self.random.chance(30);
        SleepRetention {
            generations,
            on_unrestorable: if fresh { OnUnrestorable::Fresh } else { OnUnrestorable::Fail },
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.world.trace.note(format_args!("caller {}: {text}", self.number));
    }

    /// Checks whether a request may fail with this error.
    fn refused(&self, action: &Action, error: &ServiceError) {
        let message = error.message();
        self.note(format_args!("told: {message}"));
        if matches!(error, ServiceError::Stopping) {
            self.world.trace.wrong(format_args!("{action:?} was not answered by a daemon that does not stop"));
        }
        if self.world.model.misfortune() == Misfortune::Any {
            return;
        }
        let allowed = match error.code() {
            // The name of a snapshot may be free again.
            Code::NotFound => {
                !matches!(error, ServiceError::Storage(_)) || matches!(action, Action::Create { snapshot: Some(_), .. })
            }
            Code::Conflict | Code::Gone | Code::PortClosed | Code::Unavailable => true,
            // Another volume has the same mount point.
            Code::InvalidArgument => {
                matches!(action, Action::Attach(..) | Action::MakePool(..) | Action::ResizePool(..))
            }
            Code::NoRoom | Code::TimedOut | Code::Unreadable | Code::StoreFailed | Code::Internal => false,
            Code::Failed | Code::Damaged => match action {
                Action::Create { snapshot: Some(_), .. } | Action::Clone(..) | Action::Restart(_) => {
                    message.contains("there is no saved state")
                }
                // The sandbox may have been suspended in between.
                Action::Reach(_) => matches!(error, ServiceError::Engine(_)),
                _ => false,
            },
        };
        if !allowed {
            self.world.trace.wrong(format_args!("{action:?} failed although nothing went wrong: {message}"));
        }
    }
}
