//! Copies of sandboxes, and what was created from what.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, segment};

impl Client {
    /// Takes a snapshot of a sandbox, which keeps running.
    pub async fn checkpoint(
        &self,
        sandbox: &str,
        asked: &wire::CheckpointRequest,
    ) -> Result<wire::Snapshot, ClientError> {
        self.make(&format!("/sandboxes/{}/checkpoint", segment(sandbox)), asked).await
    }

    /// Creates a copy of a sandbox, and the snapshot it was created from, which is kept.
    pub async fn clone_sandbox(&self, sandbox: &str, asked: &wire::CloneRequest) -> Result<wire::Cloned, ClientError> {
        self.make(&format!("/sandboxes/{}/clone", segment(sandbox)), asked).await
    }

    /// Creates children that continue with the memory, processes and files of a sandbox.
    pub async fn fork(&self, sandbox: &str, asked: &wire::ForkRequest) -> Result<wire::Forked, ClientError> {
        self.make(&format!("/sandboxes/{}/fork", segment(sandbox)), asked).await
    }

    /// Takes a sandbox back to one of its snapshots.
    pub async fn rewind(&self, sandbox: &str, asked: &wire::RewindRequest) -> Result<wire::Rewound, ClientError> {
        self.make(&format!("/sandboxes/{}/rewind", segment(sandbox)), asked).await
    }

    /// Replaces the parent of a sandbox with this child. The parent keeps its id and name.
    pub async fn promote(&self, child: &str, asked: &wire::PromoteRequest) -> Result<wire::Promoted, ClientError> {
        self.make(&format!("/sandboxes/{}/promote", segment(child)), asked).await
    }

    /// Recreates a terminated sandbox from its newest snapshot.
    pub async fn restart(&self, sandbox: &str, asked: &wire::RestartRequest) -> Result<wire::Restarted, ClientError> {
        self.make(&format!("/sandboxes/{}/restart", segment(sandbox)), asked).await
    }

    /// Returns which sandboxes and snapshots were created from which.
    pub async fn tree(&self, sandbox: Option<&str>, all: bool) -> Result<wire::Tree, ClientError> {
        let mut query = vec![("all", all.to_string())];
        query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
        self.read(self.request(Method::GET, "/tree").query(&query)).await
    }

    /// Returns the differences between the files of two snapshots or sandboxes.
    pub async fn diff(&self, from: &str, to: &str, order: wire::DiffOrder) -> Result<wire::Diff, ClientError> {
        let request = self.request(Method::GET, "/diff").query(&[("from", from), ("to", to)]);
        self.read(request.query(&[("order", order)])).await
    }
}
