//! Environments.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, Sse, segment};

impl Client {
    /// Asks for the sandbox of an environment: a stream of `considered`, `attempt` and `line`, then
    /// `ensured`.
    pub async fn ensure(&self, asked: &wire::EnsureRequest) -> Result<Sse, ClientError> {
        self.stream(self.once("/ensure").json(asked)).await
    }

    /// Returns what a request for an environment would do and why, and changes nothing.
    pub async fn explain_ensure(&self, asked: &wire::EnsureRequest) -> Result<wire::EnsureExplanation, ClientError> {
        self.post("/ensure/explain", asked).await
    }

    /// Returns all environments.
    pub async fn environments(&self) -> Result<Vec<wire::Environment>, ClientError> {
        self.pages("/environments", &[], |page: wire::EnvironmentList| (page.environments, page.next)).await
    }

    /// Returns an environment.
    pub async fn environment(&self, name: &str) -> Result<wire::Environment, ClientError> {
        self.get(&format!("/environments/{}", segment(name))).await
    }

    /// Cancels the work in progress of an environment.
    pub async fn cancel_environment(&self, name: &str) -> Result<wire::Environment, ClientError> {
        self.read(self.request(Method::POST, &format!("/environments/{}/cancel", segment(name)))).await
    }

    /// Ends a run that uses an environment. When the last one ends, `lifecycle` says what follows.
    pub async fn release_environment(
        &self,
        name: &str,
        asked: &wire::ReleaseEnvironment,
    ) -> Result<wire::Environment, ClientError> {
        self.post(&format!("/environments/{}/release", segment(name)), asked).await
    }

    /// Extends the lease of a run.
    pub async fn renew_environment_lease(
        &self,
        name: &str,
        lease: &str,
        asked: &wire::RenewLease,
    ) -> Result<wire::EnvironmentLease, ClientError> {
        self.post(&format!("/environments/{}/leases/{}/renew", segment(name), segment(lease)), asked).await
    }

    /// Removes an environment with its sandbox and snapshots. Its key is free at once.
    pub async fn remove_environment(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/environments/{}", segment(name)))).await
    }

    /// Returns lines of the log of an environment. Without any, waits for some for a while.
    pub async fn environment_log(&self, name: &str, offset: u64) -> Result<wire::EnvironmentLog, ClientError> {
        let asked = self.request(Method::GET, &format!("/environments/{}/logs", segment(name)));
        self.read(asked.query(&[("offset", offset.to_string()), ("wait_secs", "60".to_owned())])).await
    }
}
