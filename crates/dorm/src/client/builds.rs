//! Builds and templates.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use reqwest::{Body, Method};

use super::{Client, ClientError, Sse, segment};

impl Client {
    /// Returns whether the daemon has a context.
    pub(crate) async fn has_context(&self, hash: &str) -> Result<bool, ClientError> {
        match self.get::<wire::BuildContext>(&format!("/contexts/{hash}")).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn upload_context<S>(&self, hash: &str, archive: S) -> Result<wire::BuildContext, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let asked = self.request(Method::PUT, &format!("/contexts/{hash}"));
        self.read(asked.body(Body::wrap_stream(archive))).await
    }

    pub(crate) async fn create_build(&self, asked: &wire::CreateBuild) -> Result<wire::Build, ClientError> {
        self.post("/builds", asked).await
    }

    pub(crate) async fn builds(&self) -> Result<Vec<wire::Build>, ClientError> {
        self.pages("/builds", &[], |page: wire::BuildList| (page.builds, page.next)).await
    }

    pub(crate) async fn build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.get(&format!("/builds/{}", segment(id))).await
    }

    /// Waits for the end of a build, for at most ten minutes.
    pub(crate) async fn await_build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.read(self.request(Method::GET, &format!("/builds/{}", segment(id))).query(&[("wait_secs", "600")])).await
    }

    pub(crate) async fn cancel_build(&self, id: &str) -> Result<wire::Build, ClientError> {
        self.read(self.request(Method::POST, &format!("/builds/{}/cancel", segment(id)))).await
    }

    pub(crate) async fn build_log(&self, id: &str, offset: u64) -> Result<wire::BuildLog, ClientError> {
        let asked = self.request(Method::GET, &format!("/builds/{}/logs", segment(id)));
        self.read(asked.query(&[("offset", offset)])).await
    }

    /// Follows the log of a build: a stream of `line`, then `end`.
    pub(crate) async fn follow_build(&self, id: &str, offset: u64) -> Result<Sse, ClientError> {
        let asked = self.request(Method::GET, &format!("/builds/{}/logs", segment(id)));
        self.stream(asked.query(&[("offset", offset)])).await
    }

    pub(crate) async fn create_template(&self, asked: &wire::CreateTemplate) -> Result<wire::Template, ClientError> {
        self.post("/templates", asked).await
    }

    pub(crate) async fn templates(&self) -> Result<Vec<wire::Template>, ClientError> {
        self.pages("/templates", &[], |page: wire::TemplateList| (page.templates, page.next)).await
    }

    pub(crate) async fn template(&self, name: &str) -> Result<wire::Template, ClientError> {
        self.get(&format!("/templates/{}", segment(name))).await
    }

    pub(crate) async fn tag_template(
        &self,
        name: &str,
        asked: &wire::TagTemplate,
    ) -> Result<wire::Template, ClientError> {
        self.post(&format!("/templates/{}/tags", segment(name)), asked).await
    }

    pub(crate) async fn delete_template(&self, name: &str, tag: Option<&str>) -> Result<(), ClientError> {
        let mut asked = self.request(Method::DELETE, &format!("/templates/{}", segment(name)));
        if let Some(tag) = tag {
            asked = asked.query(&[("tag", tag)]);
        }
        self.tell(asked).await
    }
}
