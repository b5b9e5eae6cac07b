//! Volumes: the sandboxes that may write to one, and the volumes in each run.

use dorm_lifecycle::{Access, EventKind, Initiator, RunId, SandboxId, State as Life, VolumeId, Writers, leases};
use dorm_store::{Change, EventRecord};

use super::{Misfortune, Model, State};

impl Model {
    /// Checks that a volume for one writer has no second one on record, and that a change of
    /// volumes or a rewind does not fail without a fault.
    pub(super) fn volumes_committed(&self, state: &mut State, change: &Change, events: &[EventRecord]) {
        state.volumes.extend(change.volumes.iter().map(|volume| (volume.id.clone(), volume.writers)));
        if !change.sandboxes.is_empty() {
            for (volume, one, other) in second_writers(state) {
                self.trace.wrong(format_args!("{one} and {other} write to volume {volume}, which takes one writer"));
            }
        }
        for EventRecord { event, .. } in events {
            let failed = matches!(event.kind, EventKind::AttachFailed | EventKind::RewindFailed);
            if failed && self.misfortune == Misfortune::OnlyDeaths && event.initiator != Initiator::Recovery {
                let (what, why) = (event.kind.as_str(), event.detail.as_deref().unwrap_or_default());
                self.trace.wrong(format_args!("{}: {what} although nothing went wrong: {why}", event.sandbox));
            }
        }
    }

    /// The runs of running sandboxes, each with the mount points of its volumes.
    pub(crate) fn places(&self) -> Vec<(RunId, Vec<String>)> {
        let records = self.records().into_iter().map(|record| record.sandbox);
        let running = records.filter(|sandbox| matches!(sandbox.state, Life::Running { .. }));
        let places = running.map(|sandbox| {
            let mut paths: Vec<_> = sandbox.spec.attachments.iter().map(|one| one.path.to_string()).collect();
            paths.sort();
            (sandbox.run_id(), paths)
        });
        places.collect()
    }
}

fn second_writers(state: &State) -> Vec<(VolumeId, SandboxId, SandboxId)> {
    let mut writers: Vec<(VolumeId, SandboxId)> = Vec::new();
    let mut second = Vec::new();
    for known in state.sandboxes.values() {
        for lease in leases(&known.record.sandbox) {
            if lease.access != Access::Write || state.volumes.get(&lease.volume) != Some(&Writers::One) {
                continue;
            }
            let other = writers.iter().find(|(volume, by)| *volume == lease.volume && *by != lease.run.sandbox);
            if let Some((volume, other)) = other {
                second.push((volume.clone(), other.clone(), lease.run.sandbox.clone()));
            }
            writers.push((lease.volume, lease.run.sandbox));
        }
    }
    second
}
