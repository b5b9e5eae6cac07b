//! Uploads of blobs and manifests.

use bytes::Bytes;
use dorm_ports::RegistryError;
use dorm_storage::BlobDigest;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Method, Response, Url};

use super::RegistryClient;
use crate::sending::{Failed, Tries};

impl RegistryClient<'_> {
    /// Returns whether the registry has a blob.
    pub(crate) async fn has_blob(&self, digest: &BlobDigest) -> Result<bool, RegistryError> {
        let url = format!("{}/blobs/{digest}", self.base);
        let mut tries = Tries::new(self.config);
        loop {
            match self.ask(|| self.hops.request(Method::HEAD, &url)).await {
                Ok(_) => return Ok(true),
                Err(Failed::Final(RegistryError::NotFound { .. })) => return Ok(false),
                Err(failed) => tries.next(failed).await?,
            }
        }
    }

    /// Uploads a blob.
    pub(crate) async fn upload(&self, digest: &BlobDigest, content: Bytes) -> Result<(), RegistryError> {
        let mut tries = Tries::new(self.config);
        loop {
            match self.upload_once(digest, &content).await {
                Ok(()) => return Ok(()),
                Err(failed) => tries.next(failed).await?,
            }
        }
    }

    async fn upload_once(&self, digest: &BlobDigest, content: &Bytes) -> Result<(), Failed> {
        let begun = format!("{}/blobs/uploads/", self.base);
        let response = self.ask(|| self.hops.request(Method::POST, &begun).body("")).await?;
        let url = self.upload_url(&response, digest).map_err(Failed::Final)?;
        let put = || {
            let request = self.hops.request(Method::PUT, url.clone());
            request.header(CONTENT_TYPE, "application/octet-stream").body(content.clone())
        };
        self.ask(put).await.map(drop)
    }

    /// Returns the URL for uploading a blob. Credentials are sent to no other host than the
    /// registry.
    fn upload_url(&self, response: &Response, digest: &BlobDigest) -> Result<Url, RegistryError> {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let base = Url::parse(&self.base).ok();
        let url = base.as_ref().zip(location).and_then(|(base, location)| base.join(location).ok());
        match (url, base) {
            (Some(mut url), Some(base)) if url.origin() == base.origin() => {
                url.query_pairs_mut().append_pair("digest", &digest.to_string());
                Ok(url)
            }
            _ => Err(self.whom.lies("no upload URL of its own for a blob")),
        }
    }

    /// Assigns `tag` to a manifest.
    pub(crate) async fn put_manifest(&self, tag: &str, kind: &str, text: Bytes) -> Result<(), RegistryError> {
        let url = format!("{}/manifests/{tag}", self.base);
        let mut tries = Tries::new(self.config);
        loop {
            let put = || self.hops.request(Method::PUT, &url).header(CONTENT_TYPE, kind).body(text.clone());
            match self.ask(put).await {
                Ok(_) => return Ok(()),
                Err(failed) => tries.next(failed).await?,
            }
        }
    }
}
