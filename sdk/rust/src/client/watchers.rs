//! Changes of files in a sandbox: as they happen, and kept until they are taken.

use dorm_api_types as wire;
use reqwest::Method;

use super::path::sandbox as of;
use super::{Client, ClientError, Sse};

impl Client {
    /// Follows the changes in a directory, and everything below it if `recursive`: a stream of
    /// `change`. Changes before the response and after the connection are not in it; a watcher
    /// keeps those.
    pub async fn watch(&self, sandbox: &str, path: &str, recursive: bool) -> Result<Sse, ClientError> {
        let query = [("path", path.to_owned()), ("recursive", recursive.to_string())];
        self.stream(self.request(Method::GET, &of(sandbox, "files/watch")).query(&query)).await
    }

    /// Creates a watcher that keeps changes.
    pub async fn create_watcher(
        &self,
        sandbox: &str,
        asked: &wire::CreateWatcher,
    ) -> Result<wire::Watcher, ClientError> {
        self.post(&of(sandbox, "watchers"), asked).await
    }

    /// Returns the watchers of a sandbox.
    pub async fn watchers(&self, sandbox: &str) -> Result<wire::WatcherList, ClientError> {
        self.get(&of(sandbox, "watchers")).await
    }

    /// Returns changes that a watcher has kept, from the one behind `after` on. Those up to `after`
    /// are forgotten; the first request has `0`.
    pub async fn take_changes(
        &self,
        sandbox: &str,
        watcher: u64,
        after: &str,
    ) -> Result<wire::WatcherEvents, ClientError> {
        let path = of(sandbox, &format!("watchers/{watcher}/events"));
        self.read(self.request(Method::GET, &path).query(&[("after", after)])).await
    }

    /// Removes a watcher with the changes that it has kept.
    pub async fn remove_watcher(&self, sandbox: &str, watcher: u64) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &of(sandbox, &format!("watchers/{watcher}")))).await
    }
}
