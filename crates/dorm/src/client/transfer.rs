//! Snapshots and images as files. Contents are streams, so that the memory use does not depend on
//! the size.

use std::collections::BTreeMap;

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Body, Method};
use serde_json::json;

use super::{Client, ClientError, Sse, segment};

/// Headers of a response that downloads an image.
pub(crate) struct Downloaded {
    /// Its digest.
    pub(crate) image: String,
    /// The digest of the manifest in the file.
    pub(crate) manifest: String,
}

impl Client {
    /// Returns a snapshot as a file. The stream fails if the rest cannot be read.
    pub(crate) async fn export_snapshot(
        &self,
        snapshot: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let path = format!("/snapshots/{}/export", segment(snapshot));
        let answer = self.send(self.request(Method::GET, &path)).await?;
        let client = self.clone();
        Ok(answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))))
    }

    /// Imports a snapshot from a file.
    pub(crate) async fn import_snapshot<S>(
        &self,
        labels: &BTreeMap<String, String>,
        expires_secs: Option<f64>,
        length: Option<u64>,
        contents: S,
    ) -> Result<wire::Snapshot, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let mut asked = self.request(Method::POST, "/snapshots/import");
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

    /// Uploads the archive of an image: a stream of `progress`, then `done`.
    pub(crate) async fn upload_image<S>(
        &self,
        tag: Option<&str>,
        length: Option<u64>,
        contents: S,
    ) -> Result<Sse, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let mut asked = self.request(Method::POST, "/images/upload");
        if let Some(tag) = tag {
            asked = asked.query(&[("tag", tag)]);
        }
        if let Some(length) = length {
            asked = asked.header("content-length", length);
        }
        self.stream(asked.body(Body::wrap_stream(contents))).await
    }

    /// Returns an image as a file, and what the daemon says about it. The stream fails if the rest
    /// cannot be read.
    pub(crate) async fn download_image(
        &self,
        reference: &str,
    ) -> Result<(Downloaded, BoxStream<'static, Result<Bytes, ClientError>>), ClientError> {
        let path = format!("/images/{}/download", segment(reference));
        let answer = self.send(self.request(Method::GET, &path)).await?;
        let text = |name: &str| {
            let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let about = Downloaded { image: text("x-dormouse-image"), manifest: text("x-dormouse-manifest") };
        let client = self.clone();
        Ok((about, answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))).boxed()))
    }

    /// Creates a filesystem snapshot from the files of a memory snapshot.
    pub(crate) async fn snapshot_files(&self, snapshot: &str) -> Result<wire::Snapshot, ClientError> {
        self.post(&format!("/snapshots/{}/files", segment(snapshot)), &json!({})).await
    }
}
