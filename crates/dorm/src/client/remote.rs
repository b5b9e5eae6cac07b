//! Snapshots in registries.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, Sse, segment};

impl Client {
    /// Pushes a snapshot to a registry: a stream of progress events.
    pub(crate) async fn push_snapshot(&self, snapshot: &str, asked: &wire::PushSnapshot) -> Result<Sse, ClientError> {
        let path = format!("/snapshots/{}/push", segment(snapshot));
        self.stream(self.request(Method::POST, &path).json(asked)).await
    }

    /// Pulls a snapshot from a registry: a stream of progress events.
    pub(crate) async fn pull_snapshot(&self, asked: &wire::PullSnapshot) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/snapshots/pull").json(asked)).await
    }
}
