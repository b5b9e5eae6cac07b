//! Restarts a terminated sandbox: creates a new one, under another id, from its newest snapshot.

use dorm_lifecycle::{Name, Sandbox, SandboxId, SnapshotId, State};
use dorm_store::{Made, Maker, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus};

use super::create::CreateSpec;
use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::SandboxView;

/// The result of a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The snapshot it was made from.
    pub snapshot: SnapshotId,
    /// The new sandbox.
    pub sandbox: SandboxView,
}

impl Service {
    /// Creates a new sandbox from a terminated one's newest snapshot, with its settings, variables,
    /// labels, and its name unless another is given. A state that a rewind abandoned is only used
    /// if there is no other. After a promotion, the promoted state is in no snapshot until the next
    /// one is taken: until then, an earlier snapshot is used.
    ///
    /// # Errors
    ///
    /// `NotTerminated`, `NothingToRestart`, `NameTaken`, and those of [`Service::create`].
    pub async fn restart(&self, id: &SandboxId, name: Option<Name>) -> Result<Restarted, ServiceError> {
        if let Some(Made::Sandbox(earlier)) = self.earlier() {
            let sandbox = self.created_earlier(earlier).await?;
            let snapshot = sandbox
                .sandbox
                .origin
                .snapshot()
                .cloned()
                .ok_or_else(|| ServiceError::made_is_gone("sandbox", earlier))?;
            return Ok(Restarted { snapshot, sandbox });
        }
        let sandbox = self.record(id).await?.sandbox;
        let State::Terminated { .. } = &sandbox.state else {
            return Err(ServiceError::NotTerminated { sandbox: id.clone(), state: sandbox.state.name() });
        };
        let filter = SnapshotFilter { source: Some(id.clone()), ..SnapshotFilter::default() };
        let mut all = self.shared.store.find_snapshots(&filter).await?;
        if let Some(rewound) = &sandbox.rewound {
            all.extend(self.shared.store.snapshot(&rewound.to).await?.filter(|snapshot| snapshot.source != *id));
        }
        let newest = newest(&sandbox, &all).ok_or_else(|| ServiceError::NothingToRestart(id.clone()))?;
        let snapshot = newest.id.clone();
        let name = name.or_else(|| sandbox.spec.name.clone());
        let asked = CreateSpec::like(&sandbox.spec, snapshot.clone(), name);
        Ok(Restarted { snapshot, sandbox: self.create(asked).await? })
    }
}

/// Returns the snapshot nearest to the end of a sandbox: the newest since its last rewind,
/// otherwise the one it was rewound to, otherwise the newest of all.
fn newest<'a>(sandbox: &Sandbox, all: &'a [SnapshotRecord]) -> Option<&'a SnapshotRecord> {
    let usable = |snapshot: &&SnapshotRecord| {
        snapshot.status == SnapshotStatus::Completed
            && snapshot.made_by != Maker::Import
            && snapshot.removal != Removal::WhenFree
            && snapshot.image == sandbox.spec.image
    };
    // They are in the order of the requests.
    let own = || all.iter().filter(usable).filter(|snapshot| snapshot.source == sandbox.id).rev();
    let Some(rewound) = &sandbox.rewound else { return own().next() };
    let since = own().find(|snapshot| snapshot.generation >= rewound.generation);
    since.or_else(|| all.iter().filter(usable).find(|snapshot| snapshot.id == rewound.to)).or_else(|| own().next())
}
