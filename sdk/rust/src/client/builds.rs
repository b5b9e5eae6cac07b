//! Builds and templates.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::{Client, ClientError, Sse, segment};

impl Client {
    /// Returns whether the daemon has a context.
    pub async fn has_context(&self, hash: &str) -> Result<bool, ClientError> {
        match self.get::<wire::BuildContext>(&format!("/contexts/{hash}")).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a context: a tar archive with the files, whose hash is `hash`.
    pub async fn upload_context<S>(&self, hash: &str, archive: S) -> Result<wire::BuildContext, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let asked = self.request(Method::PUT, &format!("/contexts/{hash}"));
        self.read(asked.body(Body::wrap_stream(archive))).await
    }

    /// Starts a build, which the daemon carries out. It continues if the client goes away.
    pub async fn create_build(&self, asked: &wire::CreateBuild) -> Result<wire::Build, ClientError> {
        self.make("/builds", asked).await
    }

    /// Returns all builds.
    pub async fn builds(&self) -> Result<Vec<wire::Build>, ClientError> {
        self.pages("/builds", &[], |page: wire::BuildList| (page.builds, page.next)).await
    }

    /// Returns a build.
    pub async fn build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.get(&format!("/builds/{}", segment(id))).await
    }

    /// Waits for the end of a build, for at most ten minutes.
    pub async fn await_build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.read(self.request(Method::GET, &format!("/builds/{}", segment(id))).query(&[("wait_secs", "600")])).await
    }

    /// Cancels a build.
    pub async fn cancel_build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.read(self.request(Method::POST, &format!("/builds/{}/cancel", segment(id)))).await
    }

    /// Returns lines of the log of a build, from the one at `offset` on.
    pub async fn build_log(&self, id: &str, offset: u64) -> Result<wire::BuildLog, ClientError> {
        let asked = self.request(Method::GET, &format!("/builds/{}/logs", segment(id)));
        self.read(asked.query(&[("offset", offset)])).await
    }

    /// Follows the log of a build: a stream of `line`, then `end`.
    pub async fn follow_build(&self, id: &str, offset: u64) -> Result<Sse, ClientError> {
        let asked = self.request(Method::GET, &format!("/builds/{}/logs", segment(id)));
        self.stream(asked.query(&[("offset", offset)])).await
    }

    /// Creates a version of a template, and the template if there is none of the name.
    pub async fn create_template(&self, asked: &wire::CreateTemplate) -> Result<wire::Template, ClientError> {
        self.post("/templates", asked).await
    }

    /// Returns all templates.
    pub async fn templates(&self) -> Result<Vec<wire::Template>, ClientError> {
        self.pages("/templates", &[], |page: wire::TemplateList| (page.templates, page.next)).await
    }

    /// Returns a template.
    pub async fn template(&self, name: &str) -> Result<wire::Template, ClientError> {
        self.get(&format!("/templates/{}", segment(name))).await
    }

    /// Gives further tags to a version of a template.
    pub async fn tag_template(&self, name: &str, asked: &wire::TagTemplate) -> Result<wire::Template, ClientError> {
        self.post(&format!("/templates/{}/tags", segment(name)), asked).await
    }

    /// Deletes a template, or one of its tags.
    pub async fn delete_template(&self, name: &str, tag: Option<&str>) -> Result<(), ClientError> {
        let mut asked = self.request(Method::DELETE, &format!("/templates/{}", segment(name)));
        if let Some(tag) = tag {
            asked = asked.query(&[("tag", tag)]);
        }
        self.tell(asked).await
    }
}
