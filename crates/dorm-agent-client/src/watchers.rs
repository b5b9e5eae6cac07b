//! Watchers that keep changes until they are asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use dorm_agent_proto::{Answer, Event, GuestPath, NumberedEvent, Request, Scope, WatcherStatus};

use crate::agent::{Agent, wrong};
use crate::error::AgentError;
use crate::page::{Listed, PAGE_MAX, Page, collect};

impl Agent {
    /// Watches a directory and keeps its changes, from when this has returned, until
    /// [`Agent::watcher_events`] takes them. The watcher belongs to the sandbox, not to this
    /// connection, and continues across a suspend. Returns its handle.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotADirectory`], [`AgentError::Older`];
    /// [`AgentError::Invalid`] if there are 64 watchers.
    pub async fn create_watcher(&self, path: &GuestPath, scope: Scope) -> Result<u64, AgentError> {
        let (answer, channel) = self.ask(&Request::CreateWatcher { path: path.clone(), scope }).await?;
        match answer {
            Answer::Watcher(watcher) => Ok(watcher),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Returns all watchers, oldest first.
    ///
    /// # Errors
    /// [`AgentError::TooMany`], [`AgentError::Older`].
    pub async fn watchers(&self) -> Result<Vec<WatcherStatus>, AgentError> {
        let channel = self.follow(&Request::Watchers).await?;
        let watcher = |event| match event {
            Event::Watcher(status) => Listed::Item(status),
            _ => Listed::Stranger,
        };
        let Page { items, more, .. } = collect(channel, PAGE_MAX, watcher).await?;
        if more { Err(AgentError::TooMany(items.len())) } else { Ok(items) }
    }

    /// Returns the changes that a watcher has kept behind the number `after`, at most `most` and at
    /// most [`PAGE_MAX`], with all that happened before the call. The watcher forgets those up to
    /// `after`; 0 for none. Numbers rise by one. A change of the kind
    /// [`crate::WatchEventKind::Overflow`] stands for all changes since the one before it: list the
    /// directory again.
    ///
    /// # Errors
    /// [`AgentError::NoWatcher`], [`AgentError::Older`]; [`AgentError::Invalid`] for a number that
    /// the watcher has not reached.
    pub async fn watcher_events(
        &self,
        watcher: u64,
        after: u64,
        most: usize,
    ) -> Result<Page<NumberedEvent>, AgentError> {
        let most = most.clamp(1, PAGE_MAX);
        // One more, which tells whether there are more.
        let asked = u32::try_from(most + 1).unwrap_or(u32::MAX);
        let channel = self.follow(&Request::WatcherEvents { watcher, after, most: asked }).await?;
        let last = AtomicU64::new(after);
        let change = |event| match event {
            Event::Numbered(change) if change.number > last.swap(change.number, Ordering::Relaxed) => {
                Listed::Item(change)
            }
            _ => Listed::Stranger,
        };
        collect(channel, most, change).await
    }

    /// Removes a watcher with the changes that it has kept.
    ///
    /// # Errors
    /// [`AgentError::NoWatcher`], [`AgentError::Older`].
    pub async fn remove_watcher(&self, watcher: u64) -> Result<(), AgentError> {
        self.do_it(&Request::RemoveWatcher { watcher }).await
    }
}
