//! Changes in directories: as a stream, or kept by the agent until the client asks.
//!
//! The id of a watcher tells whether the client wants entries: nothing is remembered here.

use std::time::Duration;

use dorm_agent_client::{Agent, AgentError, GuestPath, PAGE_MAX, Scope, WatchEvent, WatchEventKind, WatchStream};
use dorm_service::{InUse, Use};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::json;

use super::super::access::Call;
use super::super::budget::Budget;
use super::super::connect::{Item, StreamOptions};
use super::super::fault::{Code, Failed, Fault};
use super::entry::Entry;
use super::wire::{Change, Empty, EventsResponse, WatchRequest, WatcherRequest, WatcherResponse};

/// A stream of changes, which ends at the time limit of its client.
pub(super) const OPTIONS: StreamOptions = StreamOptions { ping: br#"{"keepalive":{}}"#, grace: Duration::ZERO };

/// Whether changes have the entry of the changed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entries {
    Include,
    Omit,
}

impl Entries {
    fn of(asked: &WatchRequest) -> Self {
        if asked.include_entry == Some(true) { Self::Include } else { Self::Omit }
    }
}

/// Sends changes as they happen.
pub(super) async fn stream(call: &Call, asked: WatchRequest) -> Result<impl Stream<Item = Item> + use<>, Failed> {
    let (agent, in_use) = call.agent(Use::Watch).await?;
    let path = call.person(&agent).await?.path(asked.path.as_deref().unwrap_or_default())?;
    let entries = Entries::of(&asked);
    let changes = agent.watch(&path, scope(&asked)).await?;
    let watching = Watching { agent, root: path, entries, changes: Some(changes), _in_use: in_use };
    let start = Item::of(&json!({ "start": {} }));
    Ok(stream::iter([start]).chain(stream::unfold(watching, Watching::next)))
}

fn scope(asked: &WatchRequest) -> Scope {
    if asked.recursive == Some(true) { Scope::Below } else { Scope::Here }
}

struct Watching {
    agent: Agent,
    root: GuestPath,
    entries: Entries,
    changes: Option<WatchStream>,
    _in_use: InUse,
}

impl Watching {
    async fn next(mut self) -> Option<(Item, Self)> {
        loop {
            let item = match self.changes.as_mut()?.next().await {
                Some(Ok(event)) => match change(&self.agent, &self.root, self.entries, event).await {
                    Some(change) => return Some((Item::of(&json!({ "filesystem": change })), self)),
                    None => continue,
                },
                Some(Err(error)) => Item::end(error),
                // The stream of changes never ends of its own accord.
                None => Item::Cut,
            };
            self.changes = None;
            return Some((item, self));
        }
    }
}

/// A change as clients get it. They do not learn that changes were dropped.
async fn change(agent: &Agent, root: &GuestPath, entries: Entries, event: WatchEvent) -> Option<Change> {
    let (kind, is_there) = kind(event.kind)?;
    let name = name(root, &event.path);
    let entry = match entries == Entries::Include && is_there {
        // It may be gone meanwhile.
        true => agent.describe(&event.path).await.ok().map(Entry::of),
        false => None,
    };
    Some(Change { name, kind, entry })
}

/// The name of a kind of change, and whether the file is there afterwards.
fn kind(kind: WatchEventKind) -> Option<(&'static str, bool)> {
    match kind {
        WatchEventKind::Created | WatchEventKind::MovedTo => Some(("EVENT_TYPE_CREATE", true)),
        WatchEventKind::Modified => Some(("EVENT_TYPE_WRITE", true)),
        WatchEventKind::Attributes => Some(("EVENT_TYPE_CHMOD", true)),
        WatchEventKind::Removed => Some(("EVENT_TYPE_REMOVE", false)),
        WatchEventKind::MovedFrom => Some(("EVENT_TYPE_RENAME", false)),
        WatchEventKind::Overflow => None,
    }
}

/// The name of a path below a watched directory.
fn name(root: &GuestPath, path: &GuestPath) -> String {
    let (root, path) = (root.to_text(), path.to_text());
    let below = path.strip_prefix(root.trim_end_matches('/'));
    below.map_or_else(|| path.clone(), |below| below.trim_start_matches('/').to_owned())
}

/// Begins to keep changes.
pub(super) async fn create(call: &Call, asked: WatchRequest) -> Result<WatcherResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let path = call.person(&agent).await?.path(asked.path.as_deref().unwrap_or_default())?;
    let watcher = agent.create_watcher(&path, scope(&asked)).await?;
    Ok(WatcherResponse { watcher_id: Id { watcher, entries: Entries::of(&asked) }.to_text() })
}

/// Takes the changes that were kept, as far as the budget of a call goes. The others stay kept.
pub(super) async fn events(call: &Call, asked: WatcherRequest) -> Result<EventsResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let (id, text) = Id::of(asked)?;
    let all = agent.watchers().await?;
    let watcher = all.into_iter().find(|one| one.watcher == id.watcher).ok_or_else(|| unknown(&text))?;
    let (mut changes, mut budget) = (Vec::new(), Budget::of_call());
    let mut after = 0;
    loop {
        let page = agent.watcher_events(id.watcher, after, PAGE_MAX).await.map_err(|error| gone(error, &text))?;
        if page.items.is_empty() {
            return Ok(EventsResponse { events: changes });
        }
        let mut charged = budget.charge(0, page.bytes);
        for numbered in page.items {
            after = numbered.number;
            let change = change(&agent, &watcher.path, id.entries, numbered.event).await;
            let entry = change.as_ref().and_then(|change| change.entry.as_ref()).map_or(0, Entry::bytes);
            changes.extend(change);
            charged = charged.and(budget.charge(1, entry));
            if charged.is_err() {
                // Forgets those that are returned.
                agent.watcher_events(id.watcher, after, 1).await.map_err(|error| gone(error, &text))?;
                return Ok(EventsResponse { events: changes });
            }
        }
    }
}

/// Removes a watcher.
pub(super) async fn remove(call: &Call, asked: WatcherRequest) -> Result<Empty, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let (id, text) = Id::of(asked)?;
    agent.remove_watcher(id.watcher).await.map_err(|error| gone(error, &text))?;
    Ok(Empty {})
}

/// The id of a watcher: its number in the agent, and a letter if changes have entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Id {
    watcher: u64,
    entries: Entries,
}

impl Id {
    fn to_text(self) -> String {
        match self.entries {
            Entries::Include => format!("w{}e", self.watcher),
            Entries::Omit => format!("w{}", self.watcher),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_prefix('w')?;
        let (number, entries) = match number.strip_suffix('e') {
            Some(number) => (number, Entries::Include),
            None => (number, Entries::Omit),
        };
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { watcher: number.parse().ok().filter(|_| is_plain)?, entries })
    }

    fn of(asked: WatcherRequest) -> Result<(Self, String), Failed> {
        let text = asked.watcher_id.unwrap_or_default();
        Ok((Self::parse(&text).ok_or_else(|| unknown(&text))?, text))
    }
}

fn unknown(id: &str) -> Failed {
    Fault::new(Code::NotFound, format!("watcher with id {id} not found")).into()
}

fn gone(error: AgentError, id: &str) -> Failed {
    match error {
        AgentError::NoWatcher(_) => unknown(id),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_watcher_tells_whether_entries_are_wanted() {
        for id in [Id { watcher: 7, entries: Entries::Omit }, Id { watcher: u64::MAX, entries: Entries::Include }] {
            assert_eq!(Id::parse(&id.to_text()), Some(id));
        }
        for text in ["", "w", "we", "7", "w-7", "w+7", "w7x", "w18446744073709551616"] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_relative_to_the_watched_directory() {
        let path = |text: &str| GuestPath::try_from(text).unwrap();
        assert_eq!(name(&path("/a"), &path("/a/b/c")), "b/c");
        assert_eq!(name(&path("/"), &path("/b")), "b");
        assert_eq!(name(&path("/a/"), &path("/a/b")), "b");
    }

    #[test]
    fn a_rename_is_the_end_of_one_name_and_the_beginning_of_another() {
        assert_eq!(kind(WatchEventKind::MovedFrom), Some(("EVENT_TYPE_RENAME", false)));
        assert_eq!(kind(WatchEventKind::MovedTo), Some(("EVENT_TYPE_CREATE", true)));
        assert_eq!(kind(WatchEventKind::Overflow), None);
    }
}
