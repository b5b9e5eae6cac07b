//! Volumes.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::{ByteStream, Client, ClientError, segment};

impl Client {
    /// Creates a volume.
    pub async fn create_volume(&self, asked: &wire::CreateVolume) -> Result<wire::Volume, ClientError> {
        self.make("/volumes", asked).await
    }

    /// Returns all volumes.
    pub async fn volumes(&self) -> Result<Vec<wire::Volume>, ClientError> {
        self.pages("/volumes", &[], |page: wire::VolumeList| (page.volumes, page.next)).await
    }

    /// Returns a volume.
    pub async fn volume(&self, volume: &str) -> Result<wire::Volume, ClientError> {
        self.get(&path(volume, "")).await
    }

    /// Deletes a volume, which no sandbox may use.
    pub async fn delete_volume(&self, volume: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &path(volume, ""))).await
    }

    /// Returns the entries of a directory on a volume.
    pub async fn volume_files(&self, volume: &str, at: &str) -> Result<Vec<wire::VolumeFile>, ClientError> {
        let asked = self.request(Method::GET, &path(volume, "/files/list")).query(&[("path", at)]);
        Ok(self.read::<wire::VolumeFiles>(asked).await?.entries)
    }

    /// Returns the content of a file on a volume. The stream fails if the rest cannot be read.
    pub async fn read_volume(&self, volume: &str, at: &str) -> Result<ByteStream, ClientError> {
        self.body(self.request(Method::GET, &path(volume, "/files")).query(&[("path", at)])).await
    }

    /// Writes a file on a volume atomically: a reader sees the old or the new content.
    pub async fn write_volume<S>(&self, volume: &str, at: &str, contents: S) -> Result<(), ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let asked = self.request(Method::PUT, &path(volume, "/files")).query(&[("path", at)]);
        self.tell(asked.body(Body::wrap_stream(contents))).await
    }

    /// Attaches a volume to a sandbox, at once if it runs.
    pub async fn attach(&self, sandbox: &str, asked: &wire::AttachVolume) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/volumes", segment(sandbox)), asked).await
    }

    /// Detaches the volume at a path from a sandbox.
    pub async fn detach(&self, sandbox: &str, at: &str) -> Result<wire::Sandbox, ClientError> {
        let whole = format!("/sandboxes/{}/volumes", segment(sandbox));
        self.read(self.request(Method::DELETE, &whole).query(&[("path", at)])).await
    }
}

fn path(volume: &str, verb: &str) -> String {
    format!("/volumes/{}{verb}", segment(volume))
}
