//! Images. Contents are streams, so that the memory use does not depend on the size.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::{ByteStream, Client, ClientError, Sse, segment};

/// Headers of a response that downloads an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Downloaded {
    /// Its digest.
    pub image: String,
    /// The digest of the manifest in the file.
    pub manifest: String,
}

impl Client {
    /// Returns all images that the project sees.
    pub async fn images(&self) -> Result<Vec<wire::Image>, ClientError> {
        self.pages("/images", &[], |page: wire::ImageList| (page.images, page.next)).await
    }

    /// Returns an image.
    pub async fn image(&self, reference: &str) -> Result<wire::Image, ClientError> {
        self.get(&format!("/images/{}", segment(reference))).await
    }

    /// Imports an image from a file on the daemon's host, which only its owner may do, over the
    /// socket: a stream of `progress`, then `done`.
    pub async fn import_image(&self, asked: &wire::ImportImage) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/images/import").json(asked)).await
    }

    /// Pulls an image from a registry: a stream of `progress`, then `done`.
    pub async fn pull_image(&self, asked: &wire::PullImage) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/images/pull").json(asked)).await
    }

    /// Uploads the archive of an image: a stream of `progress`, then `done`.
    pub async fn upload_image<S>(&self, tag: Option<&str>, length: Option<u64>, contents: S) -> Result<Sse, ClientError>
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

    /// Makes an image from another image or from a snapshot, with another configuration: a stream
    /// of `progress`, then `done`.
    pub async fn compose_image(&self, asked: &wire::ComposeImage) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/images/compose").json(asked)).await
    }

    /// Returns an image as a file, and what the daemon says about it. The stream fails if the rest
    /// cannot be read.
    pub async fn download_image(&self, reference: &str) -> Result<(Downloaded, ByteStream), ClientError> {
        let path = format!("/images/{}/download", segment(reference));
        let answer = self.send(self.request(Method::GET, &path)).await?;
        let text = |name: &str| {
            let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let about = Downloaded { image: text("x-dormouse-image"), manifest: text("x-dormouse-manifest") };
        Ok((about, self.body_of(answer)))
    }

    /// Writes an image to a file on the daemon's host. Only its owner may, over the socket.
    pub async fn export_image(
        &self,
        reference: &str,
        asked: &wire::ExportImage,
    ) -> Result<wire::ExportedImage, ClientError> {
        self.post(&format!("/images/{}/export", segment(reference)), asked).await
    }

    /// Deletes an image, or one of its tags.
    pub async fn delete_image(&self, reference: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/images/{}", segment(reference)))).await
    }
}
