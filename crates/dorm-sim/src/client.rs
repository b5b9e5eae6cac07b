//! A caller: asks for things at random, is impatient now and then, and believes nothing it is told without looking.

mod deeds;
mod inside;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Keeping, OnUnrestorable, SandboxId, SnapshotId, SnapshotKind, Timeouts};
use dorm_service::{Code, KeepFuture, Service, ServiceError};
use dorm_store::Together;

use crate::model::Misfortune;
use crate::random::Random;
use crate::world::{Guests, World};

/// However slow everything is, every question is answered within this time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What a caller does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Create {
        name: Option<u64>,
        timeouts: Timeouts,
        snapshot: Option<SnapshotId>,
    },
    Clone(SandboxId, Option<u64>),
    Fork(SandboxId, Vec<Option<u64>>, Together),
    Suspend(SandboxId),
    Resume(SandboxId),
    Checkpoint(SandboxId, SnapshotKind),
    CheckpointFor(SandboxId, SnapshotKind, Duration),
    DeleteSnapshot(SnapshotId),
    Rewind(SandboxId, SnapshotId, KeepFuture),
    Restart(SandboxId),
    Promote(SandboxId),
    Evict(SandboxId),
    SetTimeouts(SandboxId, Timeouts),
    SetKeeping(SandboxId, Keeping),
    Hold(SandboxId, Duration),
    Terminate(SandboxId),
    Count(SandboxId),
    Write(SandboxId),
    Read(SandboxId),
    Run(SandboxId),
    Serve(SandboxId),
    Eat(SandboxId),
    Reach(SandboxId),
    Look(SandboxId),
    List,
    SetClock(i64),
    Kill(SandboxId),
    /// A volume of that number; whether many may write to it.
    MakeVolume(u64, bool),
    Attach(SandboxId, u64),
    Detach(SandboxId, u64),
}

/// One caller.
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) service: Service,
    pub(crate) world: Arc<World>,
    pub(crate) random: Random,
}

impl Client {
    /// Does that many things.
    pub(crate) async fn live(mut self, deeds: u64) {
        for _ in 0..deeds {
            if self.world.trace.is_wrong() {
                return;
            }
            let pause = self.random.below(12);
            if pause > 6 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let deed = self.choose();
            self.note(format_args!("{deed:?}"));
            if self.random.chance(20) {
                let patience = Duration::from_millis(self.random.below(40));
                if tokio::time::timeout(patience, self.carry_out(&deed)).await.is_ok() {
                    continue;
                }
                self.note("asks again");
            }
            self.insist(&deed).await;
        }
    }

    /// Does one thing and waits for its end.
    pub(crate) async fn insist(&mut self, deed: &Deed) {
        if tokio::time::timeout(PATIENCE, self.carry_out(deed)).await.is_err() {
            self.world.trace.wrong(format_args!("caller {} got no answer to {deed:?}", self.number));
        }
    }

    fn choose(&mut self) -> Deed {
        let living = self.world.model.living();
        let few = living.len() < 2;
        let Some(id) = self.random.pick(&living).cloned() else { return self.choose_create() };
        let snapshots = self.world.model.snapshots();
        let name = self.random.chance(70).then(|| self.random.below(6));
        match self.random.below(100) {
            0..12 if living.len() < 6 => self.choose_create(),
            12..20 if few => self.choose_create(),
            0..18 => Deed::Suspend(id),
            18..32 => Deed::Resume(id),
            32..36 => self.choose_checkpoint(id, SnapshotKind::Memory),
            36..40 => self.choose_checkpoint(id, SnapshotKind::Filesystem),
            40..43 if living.len() < 6 => Deed::Clone(id, name),
            43..47 => match self.random.pick(&snapshots) {
                Some(snapshot) => Deed::DeleteSnapshot(snapshot.clone()),
                None => Deed::Checkpoint(id, SnapshotKind::Memory),
            },
            47..51 => Deed::Evict(id),
            51..54 => Deed::SetTimeouts(id, self.choose_timeouts()),
            54 => Deed::Hold(id, Duration::from_millis(1 + self.random.below(5000))),
            55..57 => Deed::SetKeeping(id, self.choose_keeping()),
            57..60 => Deed::Terminate(id),
            60..66 => Deed::Count(id),
            66..72 => self.choose_volume(id),
            72..76 => Deed::Write(id),
            76..78 => self.choose_rewind(id, &snapshots),
            78 => self.choose_restart(id),
            79 => Deed::Promote(id),
            80 => Deed::Write(id),
            81..84 => Deed::Read(id),
            84..86 => Deed::Run(id),
            86 => Deed::Serve(id),
            87..90 => Deed::Reach(id),
            90 if self.world.guests == Guests::Hungry => Deed::Eat(id),
            90..93 => Deed::Look(id),
            93 if self.world.guests == Guests::Hungry && living.len() < 6 => self.choose_fork(id),
            93..95 => Deed::List,
            95..97 => Deed::SetClock(self.world.choose_clock(&mut self.random)),
            97..100 if self.world.model.misfortune() == Misfortune::Any => Deed::Kill(id),
            _ => Deed::Count(id),
        }
    }

    fn choose_create(&mut self) -> Deed {
        let snapshots = self.world.model.snapshots();
        let name = self.random.chance(75).then(|| self.random.below(6));
        let timeouts = self.choose_timeouts();
        let snapshot = if self.random.chance(40) { self.random.pick(&snapshots).cloned() } else { None };
        Deed::Create { name, timeouts, snapshot }
    }

    fn choose_checkpoint(&mut self, id: SandboxId, kind: SnapshotKind) -> Deed {
        if self.random.chance(40) {
            let days = 10 + self.random.below(300);
            return Deed::CheckpointFor(id, kind, Duration::from_secs(days * 86_400));
        }
        Deed::Checkpoint(id, kind)
    }

    fn choose_rewind(&mut self, id: SandboxId, snapshots: &[SnapshotId]) -> Deed {
        let keep = match self.random.below(3) {
            0 => KeepFuture::For(Duration::from_millis(1 + self.random.below(20_000))),
            1 => KeepFuture::UntilDeleted,
            _ => KeepFuture::Not,
        };
        match self.random.pick(snapshots) {
            Some(snapshot) => Deed::Rewind(id, snapshot.clone(), keep),
            None => Deed::Checkpoint(id, SnapshotKind::Memory),
        }
    }

    fn choose_restart(&mut self, id: SandboxId) -> Deed {
        let living = self.world.model.living();
        let over: Vec<_> = self.world.model.all().into_iter().filter(|id| !living.contains(id)).collect();
        match self.random.pick(&over) {
            Some(over) if living.len() < 6 => Deed::Restart(over.clone()),
            Some(_) | None => Deed::Promote(id),
        }
    }

    fn choose_fork(&mut self, id: SandboxId) -> Deed {
        let together = if self.random.chance(50) { Together::AllOrNone } else { Together::Each };
        let count = 1 + self.random.below(4);
        let first = self.random.below(6);
        let names = (0..count).map(|number| self.random.chance(30).then_some((first + number) % 6)).collect();
        Deed::Fork(id, names, together)
    }

    fn choose_timeouts(&mut self) -> Timeouts {
        let mut limit = |per_cent| {
            let length = Duration::from_millis(50 + self.random.below(20_000));
            self.random.chance(per_cent).then_some(length)
        };
        Timeouts { total: limit(10), idle: limit(20), max_run: limit(5) }
    }

    fn choose_keeping(&mut self) -> Keeping {
        let generations = 1 + u32::try_from(self.random.below(3)).unwrap_or_default();
        let fresh = self.random.chance(30);
        Keeping { generations, on_unrestorable: if fresh { OnUnrestorable::Fresh } else { OnUnrestorable::Fail } }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.world.trace.note(format_args!("caller {}: {text}", self.number));
    }

    /// It did not work. Whether that may be.
    fn refused(&self, deed: &Deed, error: &ServiceError) {
        let message = error.message();
        self.note(format_args!("told: {message}"));
        if matches!(error, ServiceError::Stopping) {
            self.world.trace.wrong(format_args!("{deed:?} was not answered by a daemon that does not stop"));
        }
        if self.world.model.misfortune() == Misfortune::Any {
            return;
        }
        let allowed = match error.code() {
            Code::NotFound => !matches!(error, ServiceError::Pool(_)),
            Code::Conflict | Code::Gone | Code::PortClosed | Code::Unavailable => true,
            // Another volume is at that place.
            Code::InvalidArgument => matches!(deed, Deed::Attach(..)),
            Code::NoRoom | Code::Unreadable | Code::Damaged | Code::Internal => false,
            Code::Failed => match deed {
                Deed::Create { snapshot: Some(_), .. } | Deed::Clone(..) | Deed::Restart(_) => {
                    message.contains("there is no capture")
                }
                // It may have fallen asleep in between.
                Deed::Reach(_) => matches!(error, ServiceError::Engine(_)),
                _ => false,
            },
        };
        if !allowed {
            self.world.trace.wrong(format_args!("{deed:?} failed although nothing went wrong: {message}"));
        }
    }
}
