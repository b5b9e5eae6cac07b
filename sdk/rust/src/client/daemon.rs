//! The daemon itself: its health, operations, events and maintenance.

use dorm_api_types as wire;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, ClientError, Sse, segment};

impl Client {
    /// Returns whether the daemon is ready. Needs no key.
    pub async fn health(&self) -> Result<wire::Health, ClientError> {
        self.get("/health").await
    }

    /// Returns version, engine and project.
    pub async fn info(&self) -> Result<wire::Info, ClientError> {
        self.get("/info").await
    }

    /// Returns the metrics of the daemon in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let bytes = self.bytes(self.request_at(Method::GET, "/metrics", false)).await?;
        String::from_utf8(bytes.into()).map_err(|source| ClientError::NotText { what: "/metrics".to_owned(), source })
    }

    /// Returns the OpenAPI document of the daemon.
    pub async fn openapi(&self) -> Result<Value, ClientError> {
        self.get("/openapi.json").await
    }

    /// Returns the certificate authority of the daemon's own hosts.
    pub async fn authority(&self) -> Result<wire::Authority, ClientError> {
        self.get("/authority").await
    }

    /// Returns the newest operations, of one sandbox or of all.
    pub async fn operations(&self, sandbox: Option<&str>, limit: u64) -> Result<Vec<wire::Operation>, ClientError> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
        let page: wire::OperationList = self.read(self.request(Method::GET, "/operations").query(&query)).await?;
        Ok(page.operations)
    }

    /// Returns an operation.
    pub async fn operation(&self, operation: &str) -> Result<wire::Operation, ClientError> {
        self.get(&format!("/operations/{}", segment(operation))).await
    }

    /// Returns an operation when it has ended, or after `seconds`.
    pub async fn operation_within(&self, operation: &str, seconds: u64) -> Result<wire::Operation, ClientError> {
        let asked = self.request(Method::GET, &format!("/operations/{}", segment(operation)));
        self.read(asked.query(&[("wait_secs", seconds)])).await
    }

    /// Returns one page of events, or the newest of them.
    pub async fn events(
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
    pub async fn follow_events(&self, sandbox: Option<&str>, after: u64) -> Result<Sse, ClientError> {
        self.stream(self.request(Method::GET, "/events").query(&events_query(sandbox, after))).await
    }

    /// Returns what a garbage collection would look at, and what it would delete.
    pub async fn items(&self) -> Result<Vec<wire::CollectorItem>, ClientError> {
        Ok(self.get::<wire::CollectorItemList>("/gc").await?.items)
    }

    /// Collects garbage: with `runs`, also runs that no record needs. Returns what it has looked
    /// at.
    pub async fn collect(&self, runs: bool) -> Result<Vec<wire::CollectorItem>, ClientError> {
        let path = if runs { "/gc?runs=true" } else { "/gc" };
        Ok(self.post::<wire::CollectorItemList>(path, &json!({})).await?.items)
    }

    /// Returns everything that can be verified.
    pub async fn stored(&self) -> Result<Vec<wire::Stored>, ClientError> {
        Ok(self.get::<wire::StoredList>("/verify").await?.stored)
    }

    /// Reads a stored object again and compares it with its checksums.
    pub async fn verify(&self, stored: &wire::Stored) -> Result<wire::Verified, ClientError> {
        self.post("/verify", stored).await
    }

    /// Returns records and files that cannot be read or are damaged.
    pub async fn quarantine(&self) -> Result<wire::Quarantine, ClientError> {
        self.get("/quarantine").await
    }
}

fn events_query(sandbox: Option<&str>, after: u64) -> Vec<(&'static str, String)> {
    let mut query = vec![("after", after.to_string())];
    query.extend(sandbox.map(|sandbox| ("sandbox", sandbox.to_owned())));
    query
}
