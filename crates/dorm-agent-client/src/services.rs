//! Services in the sandbox.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dorm_agent_proto::{
    Answer, Event, Offsets, ProcessStarted, Request, ServiceEvent, ServiceName, ServiceSpec, ServiceStatus,
};

use crate::agent::{Agent, wrong};
use crate::error::AgentError;
use crate::output::OutputStream;
use crate::page::{Listed, PAGE_MAX, Page, collect};

impl Agent {
    /// Starts a service, and returns its first process. It belongs to the sandbox, not to this
    /// connection, and continues across a suspend. A service of the same name that is over is
    /// replaced.
    ///
    /// # Errors
    /// Those of [`Agent::start`]; [`AgentError::ServiceActive`], [`AgentError::Older`];
    /// [`AgentError::Invalid`] for settings that make no sense, or if there are 64 services.
    pub async fn start_service(&self, spec: ServiceSpec) -> Result<ProcessStarted, AgentError> {
        let (answer, channel) = self.ask(&Request::StartService(spec)).await?;
        match answer {
            Answer::Started(started) => Ok(started),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Returns all services, ordered by name.
    ///
    /// # Errors
    /// [`AgentError::TooMany`], [`AgentError::Older`].
    pub async fn services(&self) -> Result<Vec<ServiceStatus>, AgentError> {
        let Page { items, more, .. } = collect(self.follow(&Request::Services).await?, PAGE_MAX, service).await?;
        if more { Err(AgentError::TooMany(items.len())) } else { Ok(items) }
    }

    /// Returns a service.
    ///
    /// # Errors
    /// [`AgentError::NoService`], [`AgentError::Older`].
    pub async fn service(&self, name: &ServiceName) -> Result<ServiceStatus, AgentError> {
        let channel = self.follow(&Request::Service { name: name.clone() }).await?;
        let found = collect(channel, 1, service).await?;
        found.items.into_iter().next().ok_or_else(|| AgentError::NoService(name.clone()))
    }

    /// Stops a service: its process and group get SIGTERM, and after `grace` what is left of its
    /// tree is killed. Returns when that is done. One that is over stays as it is.
    ///
    /// # Errors
    /// [`AgentError::NoService`], [`AgentError::Older`].
    pub async fn stop_service(&self, name: &ServiceName, grace: Duration) -> Result<(), AgentError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.do_it(&Request::StopService { name: name.clone(), grace_ms }).await
    }

    /// Removes a service that is over.
    ///
    /// # Errors
    /// [`AgentError::NoService`], [`AgentError::ServiceActive`], [`AgentError::Older`].
    pub async fn remove_service(&self, name: &ServiceName) -> Result<(), AgentError> {
        self.do_it(&Request::RemoveService { name: name.clone() }).await
    }

    /// Follows the output of all processes of a service, as [`Agent::output`] does for one, until
    /// the service is over.
    ///
    /// # Errors
    /// [`AgentError::NoService`], [`AgentError::TooManyOpen`], [`AgentError::Older`].
    pub async fn service_log(&self, name: &ServiceName, from: Offsets) -> Result<OutputStream, AgentError> {
        Ok(OutputStream::new(self.follow(&Request::ServiceLog { name: name.clone(), from }).await?))
    }

    /// Returns the events of a service behind the number `after`, at most `most` and at most
    /// [`PAGE_MAX`]. About 1,000 are kept.
    ///
    /// # Errors
    /// [`AgentError::NoService`], [`AgentError::Older`].
    pub async fn service_events(
        &self,
        name: &ServiceName,
        after: u64,
        most: usize,
    ) -> Result<Page<ServiceEvent>, AgentError> {
        let most = most.clamp(1, PAGE_MAX);
        // One more, which tells whether there are more.
        let asked = u32::try_from(most + 1).unwrap_or(u32::MAX);
        let channel = self.follow(&Request::ServiceEvents { name: name.clone(), after, most: asked }).await?;
        let last = AtomicU64::new(after);
        let event = |event| match event {
            Event::ServiceEvent(event) if event.number > last.swap(event.number, Ordering::Relaxed) => {
                Listed::Item(event)
            }
            _ => Listed::Stranger,
        };
        collect(channel, most, event).await
    }
}

fn service(event: Event) -> Listed<ServiceStatus> {
    match event {
        Event::Service(status) => Listed::Item(status),
        _ => Listed::Stranger,
    }
}
