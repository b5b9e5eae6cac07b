//! Searches, watchers, attributes and services in a sandbox.

use dorm_api_types as wire;
use reqwest::Method;
use serde::Serialize;

use super::{Client, ClientError, CommandEvents, Sse, segment};

impl Client {
    /// Finds files.
    pub(crate) async fn find(&self, sandbox: &str, query: &impl Serialize) -> Result<wire::FoundFiles, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/find")).query(query)).await
    }

    /// Finds lines in files.
    pub(crate) async fn grep(&self, sandbox: &str, query: &impl Serialize) -> Result<wire::FoundLines, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/grep")).query(query)).await
    }

    /// Follows the changes in a directory as they happen.
    pub(crate) async fn watch(&self, sandbox: &str, path: &str, recursive: bool) -> Result<Sse, ClientError> {
        let query = [("path", path.to_owned()), ("recursive", recursive.to_string())];
        self.stream(self.request(Method::GET, &of(sandbox, "files/watch")).query(&query)).await
    }

    /// Creates a watcher that keeps changes.
    pub(crate) async fn create_watcher(
        &self,
        sandbox: &str,
        asked: &wire::CreateWatcher,
    ) -> Result<wire::Watcher, ClientError> {
        self.post(&of(sandbox, "watchers"), asked).await
    }

    pub(crate) async fn watchers(&self, sandbox: &str) -> Result<wire::WatcherList, ClientError> {
        self.get(&of(sandbox, "watchers")).await
    }

    /// Takes changes of a watcher behind a number, which are then forgotten.
    pub(crate) async fn take_changes(
        &self,
        sandbox: &str,
        watcher: u64,
        after: &str,
    ) -> Result<wire::WatcherEvents, ClientError> {
        let path = of(sandbox, &format!("watchers/{watcher}/events"));
        self.read(self.request(Method::GET, &path).query(&[("after", after)])).await
    }

    pub(crate) async fn remove_watcher(&self, sandbox: &str, watcher: u64) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &of(sandbox, &format!("watchers/{watcher}")))).await
    }

    /// Returns the extended attributes of a file.
    pub(crate) async fn attributes(&self, sandbox: &str, path: &str) -> Result<wire::FileAttributes, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/attributes")).query(&[("path", path)])).await
    }

    /// Changes extended attributes of a file, and returns all that it has then.
    pub(crate) async fn set_attributes(
        &self,
        sandbox: &str,
        asked: &wire::SetFileAttributes,
    ) -> Result<wire::FileAttributes, ClientError> {
        self.post(&of(sandbox, "files/attributes"), asked).await
    }

    pub(crate) async fn start_service(
        &self,
        sandbox: &str,
        asked: &wire::StartService,
    ) -> Result<wire::Service, ClientError> {
        self.post(&of(sandbox, "services"), asked).await
    }

    pub(crate) async fn services(&self, sandbox: &str) -> Result<wire::ServiceList, ClientError> {
        self.get(&of(sandbox, "services")).await
    }

    pub(crate) async fn service(&self, sandbox: &str, name: &str) -> Result<wire::Service, ClientError> {
        self.get(&of(sandbox, &format!("services/{}", segment(name)))).await
    }

    /// Returns the events of a service that are kept.
    pub(crate) async fn service_events(
        &self,
        sandbox: &str,
        name: &str,
    ) -> Result<Vec<wire::ServiceEvent>, ClientError> {
        let path = of(sandbox, &format!("services/{}/events", segment(name)));
        let (mut all, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page: wire::ServiceEvents =
                self.read(self.request(Method::GET, &path).query(&[("after", &after)])).await?;
            all.extend(page.events);
            after = page.next;
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// Returns the output of a service, and that to come if `follow`.
    pub(crate) async fn service_log(
        &self,
        sandbox: &str,
        name: &str,
        follow: bool,
    ) -> Result<CommandEvents, ClientError> {
        let path = of(sandbox, &format!("services/{}/output", segment(name)));
        let request = self.request(Method::GET, &path).query(&[("follow", follow)]);
        Ok(CommandEvents::new(self.stream(request).await?))
    }

    pub(crate) async fn stop_service(
        &self,
        sandbox: &str,
        name: &str,
        asked: &wire::StopService,
    ) -> Result<wire::Service, ClientError> {
        self.post(&of(sandbox, &format!("services/{}/stop", segment(name))), asked).await
    }

    pub(crate) async fn remove_service(&self, sandbox: &str, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &of(sandbox, &format!("services/{}", segment(name))))).await
    }
}

fn of(sandbox: &str, rest: &str) -> String {
    format!("/sandboxes/{}/{rest}", segment(sandbox))
}
