//! Rows that a test makes unreadable, as a damaged disk would.

use dorm_lifecycle::{Name, ProjectId, SandboxId};

use super::{Content, MemoryStore};
use crate::{Change, RowKind, StoreError, UnreadableRow, codec};

const WHAT: &str = "it was spoiled by a test";

impl MemoryStore {
    /// Makes the row of that kind and key unreadable: its text becomes `raw`. Does nothing if there
    /// is no such row.
    pub fn spoil(&self, kind: RowKind, id: &str, raw: &str) {
        self.content().spoil(kind, id, raw.as_bytes().to_vec());
    }

    /// Makes a row unreadable as a single flipped byte in it would: the rest of its text stays.
    pub fn spoil_one_byte(&self, kind: RowKind, id: &str) {
        let mut content = self.content();
        let text = content.text(kind, id).unwrap_or_default();
        let mut raw = text.into_bytes();
        if let Some(first) = raw.first_mut() {
            *first = b'#';
        }
        content.spoil(kind, id, raw);
    }
}

impl Content {
    fn text(&self, kind: RowKind, id: &str) -> Option<String> {
        let text = match kind {
            RowKind::Sandbox => codec::encode_sandbox(&self.sandboxes.get(&id.parse().ok()?)?.sandbox),
            RowKind::Operation => codec::encode_operation(self.operations.get(&id.parse().ok()?)?),
            RowKind::Snapshot => codec::encode_snapshot(self.snapshots.get(&id.parse().ok()?)?),
            RowKind::Webhook => codec::encode_webhook(self.webhooks.get(&id.parse().ok()?)?),
            RowKind::Pool => codec::encode_pool(self.pools.get(&id.parse().ok()?)?),
            RowKind::Build => codec::encode_build(self.builds.get(&id.parse().ok()?)?),
            RowKind::Template => codec::encode_template(self.templates.get(&id.parse().ok()?)?),
            RowKind::Environment => codec::encode_environment(self.environments.get(&id.parse().ok()?)?),
            RowKind::Project => codec::encode_project(self.projects.get(&id.parse().ok()?)?),
            RowKind::ApiKey => codec::encode_api_key(self.api_keys.get(&id.parse().ok()?)?),
            RowKind::Volume => codec::encode_volume(self.volumes.get(&id.parse().ok()?)?),
            RowKind::Request => codec::encode_request(self.requests.get(&id.parse().ok()?)?),
            RowKind::Discard | RowKind::Event => return Some(id.to_owned()),
        };
        text.ok()
    }

    fn spoil(&mut self, kind: RowKind, id: &str, raw: Vec<u8>) {
        let Some(row) = self.take_out(kind, id, raw) else { return };
        self.spoiled.insert((kind, id.to_owned()), row);
    }

    fn take_out(&mut self, kind: RowKind, id: &str, raw: Vec<u8>) -> Option<UnreadableRow> {
        let mut row = UnreadableRow {
            kind,
            id: id.to_owned(),
            revision: None,
            project: None,
            name: None,
            what: WHAT.to_owned(),
            raw,
        };
        match kind {
            RowKind::Sandbox => {
                let record = self.sandboxes.remove(&id.parse().ok()?)?;
                row.revision = Some(record.revision);
                row.name = record.held_name().map(|(_, name)| name.clone());
                row.project = Some(record.sandbox.project);
            }
            RowKind::Snapshot => row.project = Some(self.snapshots.remove(&id.parse().ok()?)?.project),
            RowKind::Operation => drop(self.operations.remove(&id.parse().ok()?)?),
            RowKind::Webhook => drop(self.webhooks.remove(&id.parse().ok()?)?),
            RowKind::Pool => drop(self.pools.remove(&id.parse().ok()?)?),
            RowKind::Build => drop(self.builds.remove(&id.parse().ok()?)?),
            RowKind::Template => drop(self.templates.remove(&id.parse().ok()?)?),
            RowKind::Environment => drop(self.environments.remove(&id.parse().ok()?)?),
            RowKind::Project => drop(self.projects.remove(&id.parse().ok()?)?),
            RowKind::ApiKey => drop(self.api_keys.remove(&id.parse().ok()?)?),
            RowKind::Volume => drop(self.volumes.remove(&id.parse().ok()?)?),
            RowKind::Request => drop(self.requests.remove(&id.parse().ok()?)?),
            RowKind::Discard => drop(self.discard.take(&id.parse().ok()?)?),
            // The number of the event stays taken.
            RowKind::Event => drop(self.events.get(id.parse::<usize>().ok()?.checked_sub(1)?)?),
        }
        Some(row)
    }

    pub(super) fn refuse_spoiled(&self, kind: RowKind, id: &str) -> Result<(), StoreError> {
        self.spoiled.get(&(kind, id.to_owned())).map_or(Ok(()), |row| Err(row.error()))
    }

    pub(super) fn spoiled_revision(&self, id: &SandboxId) -> Option<u64> {
        self.spoiled.get(&(RowKind::Sandbox, id.to_string()))?.revision
    }

    pub(super) fn spoiled_name(&self, project: &ProjectId, name: &Name) -> Option<&UnreadableRow> {
        let mut rows = self.spoiled.values();
        rows.find(|row| row.name.as_ref() == Some(name) && row.project.as_ref() == Some(project))
    }

    /// A row that a change replaces or removes is no longer unreadable.
    pub(super) fn unspoil(&mut self, change: &Change) {
        let Change { sandboxes, operations, snapshots, forgotten, discard: _, discarded, .. } = change;
        let Change { webhooks, removed_webhooks, api_keys, removed_api_keys, volumes, removed_volumes, .. } = change;
        let Change { builds, removed_builds, templates, removed_templates, .. } = change;
        let Change { environments, removed_environments, .. } = change;
        let Change { pools, removed_pools, projects, requests, removed_requests, .. } = change;
        let mut keys: Vec<(RowKind, String)> = Vec::new();
        keys.extend(sandboxes.iter().map(|one| (RowKind::Sandbox, one.sandbox.id.to_string())));
        keys.extend(operations.iter().map(|one| (RowKind::Operation, one.id.to_string())));
        keys.extend(snapshots.iter().map(|one| (RowKind::Snapshot, one.id.to_string())));
        keys.extend(forgotten.iter().map(|id| (RowKind::Snapshot, id.to_string())));
        keys.extend(discarded.iter().map(|id| (RowKind::Discard, id.to_string())));
        keys.extend(webhooks.iter().map(|one| (RowKind::Webhook, one.id.to_string())));
        keys.extend(removed_webhooks.iter().map(|id| (RowKind::Webhook, id.to_string())));
        keys.extend(pools.iter().map(|one| (RowKind::Pool, one.id.to_string())));
        keys.extend(removed_pools.iter().map(|id| (RowKind::Pool, id.to_string())));
        keys.extend(builds.iter().map(|one| (RowKind::Build, one.id.to_string())));
        keys.extend(removed_builds.iter().map(|id| (RowKind::Build, id.to_string())));
        keys.extend(templates.iter().map(|one| (RowKind::Template, one.id.to_string())));
        keys.extend(removed_templates.iter().map(|id| (RowKind::Template, id.to_string())));
        keys.extend(environments.iter().map(|one| (RowKind::Environment, one.id.to_string())));
        keys.extend(removed_environments.iter().map(|id| (RowKind::Environment, id.to_string())));
        keys.extend(projects.iter().map(|one| (RowKind::Project, one.id.to_string())));
        keys.extend(api_keys.iter().map(|one| (RowKind::ApiKey, one.id.to_string())));
        keys.extend(removed_api_keys.iter().map(|id| (RowKind::ApiKey, id.to_string())));
        keys.extend(volumes.iter().map(|one| (RowKind::Volume, one.id.to_string())));
        keys.extend(removed_volumes.iter().map(|id| (RowKind::Volume, id.to_string())));
        keys.extend(requests.iter().map(|one| (RowKind::Request, one.id.to_string())));
        keys.extend(removed_requests.iter().map(|id| (RowKind::Request, id.to_string())));
        for key in keys {
            self.spoiled.remove(&key);
        }
    }
}
