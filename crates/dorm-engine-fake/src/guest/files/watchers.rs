//! Watchers that keep changes. They are part of the guest's memory.

use dorm_agent_proto::{Failure, GuestPath, NumberedEvent, Scope, WatchEvent, WatchEventKind, WatcherStatus};
use serde::{Deserialize, Serialize};

use super::{Files, normal};

const WATCHERS_MAX: usize = 64;
const KEPT_MAX: usize = 65_536;

/// All watchers of a guest.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Watchers {
    last: u64,
    all: Vec<Watcher>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Watcher {
    watcher: u64,
    path: GuestPath,
    scope: Scope,
    /// The number of the first change that is kept, or of the next one.
    first: u64,
    kept: Vec<WatchEvent>,
}

impl Watchers {
    pub(super) fn note(&mut self, kind: WatchEventKind, path: &GuestPath) {
        for watcher in &mut self.all {
            watcher.note(kind, path);
        }
    }
}

impl Watcher {
    fn last(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    fn note(&mut self, kind: WatchEventKind, path: &GuestPath) {
        let prefix = format!("{}/", normal(&self.path).trim_end_matches('/'));
        let text = path.to_text();
        let rest = text.strip_prefix(&prefix);
        if rest.is_none_or(|rest| self.scope == Scope::Here && rest.contains('/')) {
            return;
        }
        if self.kept.len() >= KEPT_MAX {
            self.first = self.last() + 1;
            self.kept = vec![self.overflow()];
        }
        self.kept.push(WatchEvent { kind, path: path.clone() });
    }

    fn overflow(&self) -> WatchEvent {
        WatchEvent { kind: WatchEventKind::Overflow, path: self.path.clone() }
    }
}

impl Files {
    /// Begins to watch a directory.
    pub(crate) fn create_watcher(&mut self, path: &GuestPath, scope: Scope) -> Result<u64, Failure> {
        self.list(path, 1)?;
        if self.watchers.all.len() >= WATCHERS_MAX {
            let reason = format!("there are {WATCHERS_MAX} watchers already: remove some first");
            return Err(Failure::Invalid { reason });
        }
        self.watchers.last += 1;
        let watcher = self.watchers.last;
        self.watchers.all.push(Watcher { watcher, path: path.clone(), scope, first: 1, kept: Vec::new() });
        Ok(watcher)
    }

    /// Returns all watchers, oldest first.
    pub(crate) fn watchers(&self) -> Vec<WatcherStatus> {
        let status = |one: &Watcher| WatcherStatus {
            watcher: one.watcher,
            path: one.path.clone(),
            scope: one.scope,
            last: one.last(),
        };
        self.watchers.all.iter().map(status).collect()
    }

    /// Forgets the changes up to `after`, and returns at most `most` of those behind it.
    pub(crate) fn watcher_events(
        &mut self,
        watcher: u64,
        after: u64,
        most: u32,
    ) -> Result<Vec<NumberedEvent>, Failure> {
        let found = self.watchers.all.iter_mut().find(|one| one.watcher == watcher);
        let found = found.ok_or(Failure::NoWatcher { watcher })?;
        if after > found.last() {
            let reason = format!("the watcher has had {} changes, and none with the number {after}", found.last());
            return Err(Failure::Invalid { reason });
        }
        let mut changes = Vec::new();
        let is_missing = after + 1 < found.first;
        if is_missing && found.kept.first().is_none_or(|first| first.kind != WatchEventKind::Overflow) {
            changes.push(NumberedEvent { number: found.first - 1, event: found.overflow() });
        }
        let forgotten = usize::try_from((after + 1).saturating_sub(found.first)).unwrap_or(usize::MAX);
        found.kept.drain(..forgotten);
        found.first += forgotten as u64;
        let numbered = (found.first..).zip(&found.kept);
        changes.extend(numbered.map(|(number, event)| NumberedEvent { number, event: event.clone() }));
        changes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(changes)
    }

    /// Ends a watcher.
    pub(crate) fn remove_watcher(&mut self, watcher: u64) -> Result<(), Failure> {
        let before = self.watchers.all.len();
        self.watchers.all.retain(|one| one.watcher != watcher);
        if self.watchers.all.len() == before { Err(Failure::NoWatcher { watcher }) } else { Ok(()) }
    }
}
