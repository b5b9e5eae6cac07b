//! Sandboxes, snapshots, images, events and the daemon itself: one method per route.

use dorm_api_types as wire;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Client, ClientError, Sse, segment};
use crate::values::{Order, SortBy};

/// How many items of a list are requested at once.
const PAGE: &str = "1000";

impl Client {
    /// Returns the certificate authority of the daemon's own hosts.
    pub(crate) async fn authority(&self) -> Result<wire::Authority, ClientError> {
        self.get("/authority").await
    }

    /// Every item of a list, read page by page.
    pub(super) async fn pages<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &[(&str, String)],
        of: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, ClientError> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut request = self.request(Method::GET, path).query(query).query(&[("limit", PAGE)]);
            if let Some(cursor) = &after {
                request = request.query(&[("after", cursor)]);
            }
            let (items, next) = of(self.read(request).await?);
            found.extend(items);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    pub(crate) async fn create(&self, asked: &wire::CreateSandbox) -> Result<wire::Sandbox, ClientError> {
        self.post("/sandboxes", asked).await
    }

    /// Returns the first `most` sandboxes that are in one of `states` (any state if none is given)
    /// and have all `labels`, in this order.
    pub(crate) async fn sandboxes(
        &self,
        states: &[String],
        labels: &[(String, String)],
        (sort, order): (SortBy, Order),
        most: usize,
    ) -> Result<Vec<wire::Sandbox>, ClientError> {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE.to_owned()), ("sort", sort.as_str().to_owned())];
            query.push(("order", order.as_str().to_owned()));
            if !states.is_empty() {
                query.push(("state", states.join(",")));
            }
            query.extend(labels.iter().map(|(key, value)| ("label", format!("{key}={value}"))));
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

    pub(crate) async fn describe(&self, sandbox: &str) -> Result<wire::Sandbox, ClientError> {
        self.get(&format!("/sandboxes/{}", segment(sandbox))).await
    }

    pub(crate) async fn suspend(
        &self,
        sandbox: &str,
        asked: wire::SuspendRequest,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/suspend", segment(sandbox)), &asked).await
    }

    /// Sends `terminate`.
    pub(crate) async fn command_as(
        &self,
        sandbox: &str,
        verb: &str,
        asked: wire::CommandRequest,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/{verb}", segment(sandbox)), &asked).await
    }

    /// Sends `suspend`, `evict` or `terminate`.
    pub(crate) async fn command(&self, sandbox: &str, verb: &str) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/{verb}", segment(sandbox)), &json!({})).await
    }

    pub(crate) async fn checkpoint(
        &self,
        sandbox: &str,
        asked: &wire::CheckpointRequest,
    ) -> Result<wire::Snapshot, ClientError> {
        self.post(&format!("/sandboxes/{}/checkpoint", segment(sandbox)), asked).await
    }

    pub(crate) async fn fork(&self, sandbox: &str, asked: &wire::ForkRequest) -> Result<wire::Forked, ClientError> {
        self.post(&format!("/sandboxes/{}/fork", segment(sandbox)), asked).await
    }

    pub(crate) async fn rewind(
        &self,
        sandbox: &str,
        asked: &wire::RewindRequest,
    ) -> Result<wire::Rewound, ClientError> {
        self.post(&format!("/sandboxes/{}/rewind", segment(sandbox)), asked).await
    }

    pub(crate) async fn restart(
        &self,
        sandbox: &str,
        asked: &wire::RestartRequest,
    ) -> Result<wire::Restarted, ClientError> {
        self.post(&format!("/sandboxes/{}/restart", segment(sandbox)), asked).await
    }

    pub(crate) async fn promote(
        &self,
        child: &str,
        asked: &wire::PromoteRequest,
    ) -> Result<wire::Promoted, ClientError> {
        self.post(&format!("/sandboxes/{}/promote", segment(child)), asked).await
    }

    pub(crate) async fn clone_sandbox(
        &self,
        sandbox: &str,
        asked: &wire::CloneRequest,
    ) -> Result<wire::Cloned, ClientError> {
        self.post(&format!("/sandboxes/{}/clone", segment(sandbox)), asked).await
    }

    pub(crate) async fn resume(
        &self,
        sandbox: &str,
        asked: &wire::ResumeRequest,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/resume", segment(sandbox)), asked).await
    }

    pub(crate) async fn update(
        &self,
        sandbox: &str,
        asked: &wire::UpdateSandbox,
    ) -> Result<wire::Sandbox, ClientError> {
        self.read(self.request(Method::PATCH, &format!("/sandboxes/{}", segment(sandbox))).json(asked)).await
    }

    pub(crate) async fn extend(
        &self,
        sandbox: &str,
        asked: &wire::ExtendSandbox,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/extend", segment(sandbox)), asked).await
    }

    pub(crate) async fn set_timeouts(
        &self,
        sandbox: &str,
        timeouts: &wire::SetTimeouts,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/timeouts", segment(sandbox)), timeouts).await
    }

    pub(crate) async fn set_egress(
        &self,
        sandbox: &str,
        asked: &wire::SetEgress,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/egress", segment(sandbox)), asked).await
    }

    pub(crate) async fn hold(&self, sandbox: &str, asked: &wire::HoldRequest) -> Result<wire::Hold, ClientError> {
        self.post(&format!("/sandboxes/{}/holds", segment(sandbox)), asked).await
    }

    pub(crate) async fn release(&self, sandbox: &str, hold: &str) -> Result<wire::Sandbox, ClientError> {
        let path = format!("/sandboxes/{}/holds/{}", segment(sandbox), segment(hold));
        self.read(self.request(Method::DELETE, &path)).await
    }

    pub(crate) async fn set_retention(
        &self,
        sandbox: &str,
        asked: &wire::SetRetention,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/retention", segment(sandbox)), asked).await
    }

    pub(crate) async fn set_checkpoints(
        &self,
        sandbox: &str,
        asked: &wire::SetCheckpoints,
    ) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/sandboxes/{}/checkpoints", segment(sandbox)), asked).await
    }

    pub(crate) async fn why(&self, sandbox: &str) -> Result<wire::Why, ClientError> {
        self.get(&format!("/sandboxes/{}/why", segment(sandbox))).await
    }

    pub(crate) async fn usage(&self, sandbox: &str) -> Result<wire::Usage, ClientError> {
        self.get(&format!("/sandboxes/{}/usage", segment(sandbox))).await
    }

    /// Returns what a sandbox has used since a time.
    pub(crate) async fn usage_history(
        &self,
        sandbox: &str,
        since: wire::Time,
    ) -> Result<wire::UsageHistory, ClientError> {
        self.get(&format!("/sandboxes/{}/metrics?since={since}", segment(sandbox))).await
    }

    /// Returns all snapshots, or those of the sandbox with that id.
    pub(crate) async fn snapshots(&self, source: Option<&str>) -> Result<Vec<wire::Snapshot>, ClientError> {
        let query: Vec<_> = source.map(|source| ("source", source.to_owned())).into_iter().collect();
        self.pages("/snapshots", &query, |page: wire::SnapshotList| (page.snapshots, page.next)).await
    }

    pub(crate) async fn snapshot(&self, snapshot: &str) -> Result<wire::Snapshot, ClientError> {
        self.get(&format!("/snapshots/{}", segment(snapshot))).await
    }

    pub(crate) async fn delete_snapshot(&self, snapshot: &str, when_free: bool) -> Result<(), ClientError> {
        let path = format!("/snapshots/{}", segment(snapshot));
        self.tell(self.request(Method::DELETE, &path).query(&[("when_free", when_free)])).await
    }

    /// Returns which sandboxes and snapshots were created from which.
    pub(crate) async fn tree(&self, sandbox: Option<&str>, all: bool) -> Result<wire::Tree, ClientError> {
        let mut query = vec![("all", all.to_string())];
        query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
        self.read(self.request(Method::GET, "/tree").query(&query)).await
    }

    /// Returns the differences between the files of two snapshots or sandboxes.
    pub(crate) async fn diff(&self, from: &str, to: &str, order: wire::DiffOrder) -> Result<wire::Diff, ClientError> {
        let request = self.request(Method::GET, "/diff").query(&[("from", from), ("to", to)]);
        self.read(request.query(&[("order", order)])).await
    }

    pub(crate) async fn images(&self) -> Result<Vec<wire::Image>, ClientError> {
        self.pages("/images", &[], |page: wire::ImageList| (page.images, page.next)).await
    }

    /// Imports an image: a stream of `progress`, then `done`.
    pub(crate) async fn import_image(&self, asked: &wire::ImportImage) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/images/import").json(asked)).await
    }

    pub(crate) async fn pull_image(&self, asked: &wire::PullImage) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::POST, "/images/pull").json(asked)).await
    }

    pub(crate) async fn image(&self, reference: &str) -> Result<wire::Image, ClientError> {
        self.get(&format!("/images/{}", segment(reference))).await
    }

    pub(crate) async fn export_image(
        &self,
        reference: &str,
        asked: &wire::ExportImage,
    ) -> Result<wire::ExportedImage, ClientError> {
        self.post(&format!("/images/{}/export", segment(reference)), asked).await
    }

    pub(crate) async fn delete_image(&self, reference: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/images/{}", segment(reference)))).await
    }

    pub(crate) async fn items(&self) -> Result<Vec<wire::CollectorItem>, ClientError> {
        Ok(self.get::<wire::CollectorItemList>("/gc").await?.items)
    }

    pub(crate) async fn collect(&self, runs: bool) -> Result<Vec<wire::CollectorItem>, ClientError> {
        let path = if runs { "/gc?runs=true" } else { "/gc" };
        Ok(self.post::<wire::CollectorItemList>(path, &json!({})).await?.items)
    }

    pub(crate) async fn stored(&self) -> Result<Vec<wire::Stored>, ClientError> {
        Ok(self.get::<wire::StoredList>("/verify").await?.stored)
    }

    pub(crate) async fn verify(&self, stored: &wire::Stored) -> Result<wire::Verified, ClientError> {
        self.post("/verify", stored).await
    }

    pub(crate) async fn quarantine(&self) -> Result<wire::Quarantine, ClientError> {
        self.get("/quarantine").await
    }

    pub(crate) async fn create_webhook(&self, asked: &wire::CreateWebhook) -> Result<wire::Webhook, ClientError> {
        self.post("/webhooks", asked).await
    }

    pub(crate) async fn webhooks(&self) -> Result<Vec<wire::Webhook>, ClientError> {
        self.pages("/webhooks", &[], |page: wire::WebhookList| (page.webhooks, page.next)).await
    }

    pub(crate) async fn replay_webhook(&self, webhook: &str, after: u64) -> Result<wire::Webhook, ClientError> {
        self.post(&format!("/webhooks/{}/replay", segment(webhook)), &wire::ReplayWebhook { after }).await
    }

    pub(crate) async fn delete_webhook(&self, webhook: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/webhooks/{}", segment(webhook)))).await
    }

    pub(crate) async fn create_pool(&self, asked: &wire::CreatePool) -> Result<wire::Pool, ClientError> {
        self.post("/pools", asked).await
    }

    pub(crate) async fn pools(&self) -> Result<Vec<wire::Pool>, ClientError> {
        self.pages("/pools", &[], |page: wire::PoolList| (page.pools, page.next)).await
    }

    pub(crate) async fn pool(&self, name: &str) -> Result<wire::Pool, ClientError> {
        self.get(&format!("/pools/{}", segment(name))).await
    }

    pub(crate) async fn resize_pool(&self, name: &str, asked: &wire::ResizePool) -> Result<wire::Pool, ClientError> {
        self.read(self.request(Method::PUT, &format!("/pools/{}/size", segment(name))).json(asked)).await
    }

    pub(crate) async fn claim(&self, pool: &str, asked: &wire::ClaimRequest) -> Result<wire::Sandbox, ClientError> {
        self.post(&format!("/pools/{}/claim", segment(pool)), asked).await
    }

    pub(crate) async fn delete_pool(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/pools/{}", segment(name)))).await
    }

    pub(crate) async fn create_project(&self, asked: &wire::CreateProject) -> Result<wire::Project, ClientError> {
        self.post("/projects", asked).await
    }

    pub(crate) async fn projects(&self) -> Result<Vec<wire::Project>, ClientError> {
        self.pages("/projects", &[], |page: wire::ProjectList| (page.projects, page.next)).await
    }

    pub(crate) async fn project(&self, name: &str) -> Result<wire::Project, ClientError> {
        self.get(&format!("/projects/{}", segment(name))).await
    }

    pub(crate) async fn set_budgets(
        &self,
        name: &str,
        budgets: &wire::ProjectBudgets,
    ) -> Result<wire::Project, ClientError> {
        self.read(self.request(Method::PUT, &format!("/projects/{}/budgets", segment(name))).json(budgets)).await
    }

    pub(crate) async fn delete_project(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/projects/{}", segment(name)))).await
    }

    pub(crate) async fn set_secret(
        &self,
        name: &str,
        asked: &wire::SetSecret,
    ) -> Result<wire::ProjectSecret, ClientError> {
        self.read(self.request(Method::PUT, &format!("/secrets/{}", segment(name))).json(asked)).await
    }

    pub(crate) async fn secrets(&self) -> Result<Vec<wire::ProjectSecret>, ClientError> {
        self.pages("/secrets", &[], |page: wire::SecretList| (page.secrets, page.next)).await
    }

    pub(crate) async fn delete_secret(&self, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/secrets/{}", segment(name)))).await
    }

    pub(crate) async fn create_key(&self, asked: &wire::CreateKey) -> Result<wire::CreatedKey, ClientError> {
        self.post("/keys", asked).await
    }

    pub(crate) async fn keys(&self) -> Result<Vec<wire::Key>, ClientError> {
        self.pages("/keys", &[], |page: wire::KeyList| (page.keys, page.next)).await
    }

    pub(crate) async fn delete_key(&self, key: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/keys/{}", segment(key)))).await
    }

    /// Returns the newest operations, of one sandbox or of all.
    pub(crate) async fn operations(
        &self,
        sandbox: Option<&str>,
        limit: u64,
    ) -> Result<Vec<wire::Operation>, ClientError> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
        let page: wire::OperationList = self.read(self.request(Method::GET, "/operations").query(&query)).await?;
        Ok(page.operations)
    }

    pub(crate) async fn operation(&self, operation: &str) -> Result<wire::Operation, ClientError> {
        self.get(&format!("/operations/{}", segment(operation))).await
    }

    /// Returns an operation when it has ended, or after `seconds`.
    pub(crate) async fn operation_within(&self, operation: &str, seconds: u64) -> Result<wire::Operation, ClientError> {
        let asked = self.request(Method::GET, &format!("/operations/{}", segment(operation)));
        self.read(asked.query(&[("wait_secs", seconds)])).await
    }

    /// Returns how to reach a port in a sandbox.
    pub(crate) async fn port(&self, sandbox: &str, port: u16) -> Result<wire::Port, ClientError> {
        self.get(&format!("/sandboxes/{}/ports/{port}", segment(sandbox))).await
    }

    /// Creates a link that opens a port in a browser, once.
    pub(crate) async fn port_link(&self, sandbox: &str, port: u16) -> Result<wire::PortLink, ClientError> {
        self.post(&format!("/sandboxes/{}/ports/{port}/link", segment(sandbox)), &wire::LinkRequest {}).await
    }

    /// Returns one page of events, or the newest of them.
    pub(crate) async fn events(
        &self,
        sandbox: Option<&str>,
        after: u64,
        newest: Option<u64>,
    ) -> Result<wire::EventPage, ClientError> {
        let mut query = events_query(sandbox, after);
        query.extend(newest.map(|newest| ("newest", newest.to_string())));
        self.read(self.request(Method::GET, "/events").query(&query)).await
    }

    /// Follows events.
    pub(crate) async fn follow_events(&self, sandbox: Option<&str>, after: u64) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::GET, "/events").query(&events_query(sandbox, after))).await
    }
}

fn events_query(sandbox: Option<&str>, after: u64) -> Vec<(&'static str, String)> {
    let mut query = vec![("after", after.to_string())];
    query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
    query
}
