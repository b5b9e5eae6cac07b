//! Snapshots and copies of a sandbox.

use super::Sandbox;
use crate::client::{Client, ClientError};
use crate::types;

/// A clone of a sandbox.
#[derive(Clone, Debug)]
pub struct Cloned {
    /// The clone, which runs.
    pub sandbox: Sandbox,
    /// The snapshot it was created from, which is kept.
    pub snapshot: types::Snapshot,
}

/// The result of a rewind or of a promotion.
#[derive(Clone, Debug)]
pub struct Rewound {
    /// The sandbox, which runs.
    pub sandbox: Sandbox,
    /// ID of the snapshot of its state before, if that is kept.
    pub future: Option<String>,
}

impl Sandbox {
    /// Takes a snapshot of its files, or also of its memory and processes. It keeps running.
    pub async fn checkpoint(&self, kind: types::SnapshotKind) -> Result<types::Snapshot, ClientError> {
        self.checkpoint_with(&types::CheckpointRequest { kind, ..types::CheckpointRequest::default() }).await
    }

    /// Takes a snapshot, such as one with a name.
    pub async fn checkpoint_with(&self, asked: &types::CheckpointRequest) -> Result<types::Snapshot, ClientError> {
        self.client.checkpoint(&self.id, asked).await
    }

    /// Returns its snapshots, oldest first.
    pub async fn snapshots(&self) -> Result<Vec<types::Snapshot>, ClientError> {
        self.client.snapshots(Some(&self.id)).await
    }

    /// Creates a copy that continues with its memory, processes and files.
    ///
    /// The name has an underscore because `clone` copies the handle.
    pub async fn clone_(&self, asked: &types::CloneRequest) -> Result<Cloned, ClientError> {
        let cloned = self.client.clone_sandbox(&self.id, asked).await?;
        Ok(Cloned { sandbox: self.other(cloned.sandbox.id), snapshot: cloned.snapshot })
    }

    /// Creates children, 1 to 256, that continue with its memory, processes and files: all of them
    /// or none.
    pub async fn fork(&self, count: u32) -> Result<Vec<Self>, ClientError> {
        let on_partial_failure = types::OnPartialFailure::RollBack;
        let asked = types::ForkRequest { count: Some(count), on_partial_failure, ..types::ForkRequest::default() };
        self.fork_with(&asked).await?.into_iter().collect()
    }

    /// Creates children as described. The result has one item for each, in the order of the
    /// request: the child, or why it could not be created.
    pub async fn fork_with(&self, asked: &types::ForkRequest) -> Result<Vec<Result<Self, ClientError>>, ClientError> {
        let forked = self.client.fork(&self.id, asked).await?;
        let children = forked.children.into_iter().filter_map(|child| match (child.sandbox, child.error) {
            (Some(sandbox), _) => Some(Ok(self.other(sandbox.id))),
            (None, error) => error.map(|error| Err(ClientError::refused_in_stream(error))),
        });
        Ok(children.collect())
    }

    /// Takes it back to one of its snapshots. The state before is kept as a snapshot for seven
    /// days.
    pub async fn rewind(&self, snapshot: &str) -> Result<Rewound, ClientError> {
        self.rewind_with(&types::RewindRequest { to: snapshot.to_owned(), ..types::RewindRequest::default() }).await
    }

    /// Takes it back, such as without keeping the state before.
    pub async fn rewind_with(&self, asked: &types::RewindRequest) -> Result<Rewound, ClientError> {
        let rewound = self.client.rewind(&self.id, asked).await?;
        Ok(Rewound { sandbox: self.other(rewound.sandbox.id), future: rewound.future })
    }

    /// Replaces its parent with this child, which must come from a fork or clone. The parent
    /// continues as the child under its own id and name, and the child is terminated. Returns the
    /// parent; its previous state is kept as a snapshot as `asked` says, by default for seven days.
    pub async fn promote(&self, asked: &types::PromoteRequest) -> Result<Rewound, ClientError> {
        let promoted = self.client.promote(&self.id, asked).await?;
        Ok(Rewound { sandbox: self.other(promoted.sandbox.id), future: promoted.future })
    }

    /// Creates a sandbox from its newest snapshot, if it is terminated.
    pub async fn restart(&self) -> Result<Self, ClientError> {
        let restarted = self.client.restart(&self.id, &types::RestartRequest::default()).await?;
        Ok(self.other(restarted.sandbox.id))
    }

    /// Returns the differences from the files of a snapshot or of another sandbox to its own.
    pub async fn diff(&self, from: &str) -> Result<types::Diff, ClientError> {
        self.client.diff(from, &self.id, types::DiffOrder::Given).await
    }

    /// Returns the sandboxes and snapshots that it was created from, and that were created from it.
    pub async fn tree(&self) -> Result<types::Tree, ClientError> {
        self.client.tree(Some(&self.id), true).await
    }

    fn other(&self, id: String) -> Self {
        let client: Client = self.client.clone();
        Self { client, id }
    }
}
