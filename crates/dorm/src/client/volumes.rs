//! Volumes.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Body, Method};

use super::{Client, ClientError, segment};

impl Client {
    pub(crate) async fn create_volume(&self, asked: &wire::CreateVolume) -> Result<wire::Volume, ClientError> {
        self.post("/volumes", asked).await
    }

    pub(crate) async fn volumes(&self) -> Result<Vec<wire::Volume>, ClientError> {
        self.pages("/volumes", &[], |page: wire::VolumeList| (page.volumes, page.next)).await
    }

    pub(crate) async fn volume(&self, volume: &str) -> Result<wire::Volume, ClientError> {
        self.get(&path(volume, "")).await
    }

    pub(crate) async fn delete_volume(&self, volume: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &path(volume, ""))).await
    }

    /// Returns the entries of a directory on a volume.
    pub(crate) async fn volume_files(&self, volume: &str, at: &str) -> Result<Vec<wire::VolumeFile>, ClientError> {
        let asked = self.request(Method::GET, &path(volume, "/files/list")).query(&[("path", at)]);
        Ok(self.read::<wire::VolumeFiles>(asked).await?.entries)
    }

    /// Returns the content of a file on a volume. The stream fails if the rest cannot be read.
    pub(crate) async fn read_volume(
        &self,
        volume: &str,
        at: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let answer = self.send(self.request(Method::GET, &path(volume, "/files")).query(&[("path", at)])).await?;
        let client = self.clone();
        Ok(answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))))
    }

    /// Writes a file on a volume atomically: a reader sees the old or the new content.
    pub(crate) async fn write_volume<S>(&self, volume: &str, at: &str, contents: S) -> Result<(), ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let asked = self.request(Method::PUT, &path(volume, "/files")).query(&[("path", at)]);
        self.tell(asked.body(Body::wrap_stream(contents))).await
    }

    pub(crate) async fn attach(&self, sandbox: &str, asked: &wire::AttachVolume) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/volumes", segment(sandbox)), asked).await
    }

    pub(crate) async fn detach(&self, sandbox: &str, at: &str) -> Result<wire::Sandbox, ClientError> {
        let whole = format!("/sandboxes/{}/volumes", segment(sandbox));
        self.read(self.request(Method::DELETE, &whole).query(&[("path", at)])).await
    }
}

fn path(volume: &str, verb: &str) -> String {
    format!("/volumes/{}{verb}", segment(volume))
}
