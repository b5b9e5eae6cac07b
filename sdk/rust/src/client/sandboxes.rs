//! Sandboxes: their life, their settings and their state.

use dorm_api_types as wire;
use reqwest::Method;
use serde_json::json;

use super::{Client, ClientError, SandboxFilter, segment};

impl Client {
    /// Creates a sandbox. By default it runs when this returns.
    pub async fn create(&self, asked: &wire::CreateSandbox) -> Result<wire::Sandbox, ClientError> {
        self.make("/sandboxes", asked).await
    }

    /// Returns the sandboxes that a filter selects.
    pub async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<wire::Sandbox>, ClientError> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        let most = filter.most.unwrap_or(usize::MAX);
        loop {
            let mut query = filter.query();
            query.extend(after.iter().map(|id| ("after", id.clone())));
            let page: wire::SandboxPage = self.read(self.request(Method::GET, "/sandboxes").query(&query)).await?;
            found.extend(page.sandboxes);
            found.truncate(most);
            match page.next.filter(|_| found.len() < most) {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Returns a sandbox.
    pub async fn describe(&self, sandbox: &str) -> Result<wire::Sandbox, ClientError> {
        self.get(&format!("/sandboxes/{}", segment(sandbox))).await
    }

    /// Suspends a sandbox. By default, what is kept of it is on disk and verified when this
    /// returns.
    pub async fn suspend(&self, sandbox: &str, asked: wire::SuspendRequest) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/suspend", segment(sandbox)), &asked).await
    }

    /// Resumes a suspended sandbox. One that runs is not changed.
    pub async fn resume(&self, sandbox: &str, asked: &wire::ResumeRequest) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/resume", segment(sandbox)), asked).await
    }

    /// Releases the memory of a suspended sandbox, which is then resumed from disk. One that is not
    /// suspended is not changed.
    pub async fn evict(&self, sandbox: &str) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/evict", segment(sandbox)), &json!({})).await
    }

    /// Terminates a sandbox. By default, nothing of it is left when this returns but its record and
    /// its snapshots. One that is terminated is not changed.
    pub async fn terminate(&self, sandbox: &str, asked: wire::CommandRequest) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/terminate", segment(sandbox)), &asked).await
    }

    /// Terminates a sandbox, like [`Client::terminate`] with its defaults, by the method DELETE.
    pub async fn delete_sandbox(&self, sandbox: &str) -> Result<wire::Sandbox, ClientError> {
        self.read(self.request(Method::DELETE, &format!("/sandboxes/{}", segment(sandbox)))).await
    }

    /// Changes properties of a sandbox, all of them or none.
    pub async fn update(&self, sandbox: &str, asked: &wire::UpdateSandbox) -> Result<wire::Sandbox, ClientError> {
        self.read(self.request(Method::PATCH, &format!("/sandboxes/{}", segment(sandbox))).json(asked)).await
    }

    /// Postpones the deadline of a sandbox.
    pub async fn extend(&self, sandbox: &str, asked: &wire::ExtendSandbox) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/extend", segment(sandbox)), asked).await
    }

    /// Replaces the time limits of a sandbox.
    pub async fn set_timeouts(
        &self,
        sandbox: &str,
        timeouts: &wire::SetTimeouts,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/timeouts", segment(sandbox)), timeouts).await
    }

    /// Changes where a sandbox may connect to, at once if it runs.
    pub async fn set_egress(&self, sandbox: &str, asked: &wire::SetEgress) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/egress", segment(sandbox)), asked).await
    }

    /// Keeps a sandbox awake until the hold expires or is released.
    pub async fn hold(&self, sandbox: &str, asked: &wire::HoldRequest) -> Result<wire::Hold, ClientError> {
        self.make(&format!("/sandboxes/{}/holds", segment(sandbox)), asked).await
    }

    /// Releases a hold.
    pub async fn release(&self, sandbox: &str, hold: &str) -> Result<wire::Sandbox, ClientError> {
        let path = format!("/sandboxes/{}/holds/{}", segment(sandbox), segment(hold));
        self.read(self.request(Method::DELETE, &path)).await
    }

    /// Changes how many sleep images of a sandbox are kept.
    pub async fn set_retention(&self, sandbox: &str, asked: &wire::SetRetention) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/retention", segment(sandbox)), asked).await
    }

    /// Sets or removes the policy for automatic checkpoints.
    pub async fn set_checkpoints(
        &self,
        sandbox: &str,
        asked: &wire::SetCheckpoints,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/checkpoints", segment(sandbox)), asked).await
    }

    /// Explains the state of a sandbox.
    pub async fn why(&self, sandbox: &str) -> Result<wire::Why, ClientError> {
        self.get(&format!("/sandboxes/{}/why", segment(sandbox))).await
    }

    /// Returns what a sandbox uses now.
    pub async fn usage(&self, sandbox: &str) -> Result<wire::Usage, ClientError> {
        self.get(&format!("/sandboxes/{}/usage", segment(sandbox))).await
    }

    /// Returns what a sandbox has used since a time.
    pub async fn usage_history(&self, sandbox: &str, since: wire::Time) -> Result<wire::UsageHistory, ClientError> {
        self.get(&format!("/sandboxes/{}/metrics?since={since}", segment(sandbox))).await
    }
}
