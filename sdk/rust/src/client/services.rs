//! Services in a sandbox.

use dorm_api_types as wire;
use reqwest::Method;

use super::path::sandbox as of;
use super::{Client, ClientError, CommandEvents, segment};

impl Client {
    /// Starts a service: a process that is started again when it ends.
    pub async fn start_service(&self, sandbox: &str, asked: &wire::StartService) -> Result<wire::Service, ClientError> {
        self.post(&of(sandbox, "services"), asked).await
    }

    /// Returns the services of a sandbox.
    pub async fn services(&self, sandbox: &str) -> Result<wire::ServiceList, ClientError> {
        self.get(&of(sandbox, "services")).await
    }

    /// Returns a service.
    pub async fn service(&self, sandbox: &str, name: &str) -> Result<wire::Service, ClientError> {
        self.get(&of(sandbox, &format!("services/{}", segment(name)))).await
    }

    /// Returns the events of a service that are kept.
    pub async fn service_events(&self, sandbox: &str, name: &str) -> Result<Vec<wire::ServiceEvent>, ClientError> {
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
    pub async fn service_log(&self, sandbox: &str, name: &str, follow: bool) -> Result<CommandEvents, ClientError> {
        let path = of(sandbox, &format!("services/{}/output", segment(name)));
        let request = self.request(Method::GET, &path).query(&[("follow", follow)]);
        Ok(CommandEvents::new(self.stream(request).await?))
    }

    /// Stops a service. It stays in the list and can be started again.
    pub async fn stop_service(
        &self,
        sandbox: &str,
        name: &str,
        asked: &wire::StopService,
    ) -> Result<wire::Service, ClientError> {
        self.post(&of(sandbox, &format!("services/{}/stop", segment(name))), asked).await
    }

    /// Removes a service, which is stopped first.
    pub async fn remove_service(&self, sandbox: &str, name: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &of(sandbox, &format!("services/{}", segment(name))))).await
    }
}
