//! Snapshots, also as files and in registries. Contents are streams, so that the memory use does
//! not depend on the size.

use std::collections::BTreeMap;

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};
use serde_json::json;

use super::{ByteStream, Client, ClientError, Sse, segment};

impl Client {
    /// Returns all snapshots, or those of the sandbox with the id `source`.
    pub async fn snapshots(&self, source: Option<&str>) -> Result<Vec<wire::Snapshot>, ClientError> {
        let query: Vec<_> = source.map(|source| ("source", source.to_owned())).into_iter().collect();
        self.pages("/snapshots", &query, |page: wire::SnapshotList| (page.snapshots, page.next)).await
    }

    /// Returns a snapshot.
    pub async fn snapshot(&self, snapshot: &str) -> Result<wire::Snapshot, ClientError> {
        self.get(&format!("/snapshots/{}", segment(snapshot))).await
    }

    /// Deletes a snapshot. With `when_free`, one that is in use is deleted as soon as it is not.
    pub async fn delete_snapshot(&self, snapshot: &str, when_free: bool) -> Result<(), ClientError> {
        let path = format!("/snapshots/{}", segment(snapshot));
        self.tell(self.request(Method::DELETE, &path).query(&[("when_free", when_free)])).await
    }

    /// Returns a snapshot as a file. The stream fails if the rest cannot be read.
    pub async fn export_snapshot(&self, snapshot: &str) -> Result<ByteStream, ClientError> {
        self.body(self.request(Method::GET, &format!("/snapshots/{}/export", segment(snapshot)))).await
    }

    /// Imports a snapshot from a file of `length` bytes, if that is known. `expires_secs` is the
    /// number of seconds after which it is deleted. Default: never.
    pub async fn import_snapshot<S>(
        &self,
        labels: &BTreeMap<String, String>,
        expires_secs: Option<f64>,
        length: Option<u64>,
        contents: S,
    ) -> Result<wire::Snapshot, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let mut asked = self.once("/snapshots/import");
        if !labels.is_empty() {
            asked = asked.query(&[("labels", json!(labels).to_string())]);
        }
        if let Some(expires) = expires_secs {
            asked = asked.query(&[("expires_secs", expires.to_string())]);
        }
        if let Some(length) = length {
            asked = asked.header("content-length", length);
        }
        self.read(asked.body(Body::wrap_stream(contents))).await
    }

    /// Creates a filesystem snapshot from the files of a memory snapshot.
    pub async fn snapshot_files(&self, snapshot: &str) -> Result<wire::Snapshot, ClientError> {
        self.make(&format!("/snapshots/{}/files", segment(snapshot)), &json!({})).await
    }

    /// Pushes a snapshot to a registry: a stream of `progress`, then `done`.
    pub async fn push_snapshot(&self, snapshot: &str, asked: &wire::PushSnapshot) -> Result<Sse, ClientError> {
        let path = format!("/snapshots/{}/push", segment(snapshot));
        self.stream(self.request(Method::POST, &path).json(asked)).await
    }

    /// Pulls a snapshot from a registry: a stream of `progress`, then `done`.
    pub async fn pull_snapshot(&self, asked: &wire::PullSnapshot) -> Result<Sse, ClientError> {
        self.stream(self.once("/snapshots/pull").json(asked)).await
    }
}
