//! Finds missing records, and records whose images are missing, one after the other: each record
//! that is written is a fact for the next.

use dorm_lifecycle::{SandboxId, SavedStateId, SnapshotId, State};
use dorm_storage::{Storage, StorageError};
use dorm_store::{Change, RowKind, SandboxRecord, SnapshotStatus, codec};

use super::facts::{Facts, sleep_image};
use super::unreadable::{rewrite, snapshot_of};
use super::{Finding, Remedy};

const NO_ROW: &str = "there is a record file, but no row";

impl Facts {
    /// Returns the next gap. The records that its remedy writes count as written.
    pub(super) async fn next_gap(&mut self, storage: &Storage) -> Option<Finding> {
        let finding = match self.file_without_row(storage).await {
            Some(finding) => finding,
            None => match self.image_that_is_gone(storage).await {
                Some(finding) => finding,
                None => self.state_without_record(storage).await?,
            },
        };
        self.told.insert((finding.kind.clone(), finding.id.clone()));
        if let Remedy::Rebuild { change, .. } = &finding.remedy {
            for record in &change.sandboxes {
                self.sandboxes.retain(|one| one.sandbox.id != record.sandbox.id);
                self.sandboxes.push(record.clone());
            }
            self.snapshots.extend(change.snapshots.clone());
            self.webhooks.extend(change.webhooks.clone());
            self.pools.extend(change.pools.clone());
            self.builds.extend(change.builds.clone());
            self.templates.extend(change.templates.clone());
            self.environments.extend(change.environments.clone());
            self.projects.extend(change.projects.clone());
            self.volumes.extend(change.volumes.clone());
        }
        Some(finding)
    }

    fn is_told(&self, kind: &str, id: &str) -> bool {
        self.told.contains(&(kind.to_owned(), id.to_owned()))
    }

    fn has_row(&self, kind: RowKind, id: &str) -> bool {
        self.unreadable.iter().any(|row| row.kind == kind && row.id == id)
            || match kind {
                RowKind::Sandbox => self.sandboxes.iter().any(|record| record.sandbox.id.as_str() == id),
                RowKind::Snapshot => self.snapshots.iter().any(|snapshot| snapshot.id.as_str() == id),
                RowKind::Webhook => self.webhooks.iter().any(|webhook| webhook.id.as_str() == id),
                RowKind::Volume => self.volumes.iter().any(|volume| volume.id.as_str() == id),
                RowKind::Pool => self.pools.iter().any(|pool| pool.id.as_str() == id),
                RowKind::Build => self.builds.iter().any(|build| build.id.as_str() == id),
                RowKind::Template => self.templates.iter().any(|template| template.id.as_str() == id),
                RowKind::Environment => self.environments.iter().any(|one| one.id.as_str() == id),
                RowKind::Project => self.projects.iter().any(|project| project.id.as_str() == id),
                RowKind::ApiKey | RowKind::Request | RowKind::Operation | RowKind::Discard | RowKind::Event => true,
            }
    }

    async fn file_without_row(&self, storage: &Storage) -> Option<Finding> {
        let missing = self
            .files
            .iter()
            .filter(|file| !self.has_row(file.kind, &file.id) && !self.is_told(file.kind.as_str(), &file.id));
        for file in missing {
            let remedy = match file.kind {
                RowKind::Sandbox => match file.id.parse::<SandboxId>() {
                    Ok(id) => self.sandbox(&id, 0, None, None, storage).await,
                    Err(error) => Remedy::Nothing(error.to_string()),
                },
                RowKind::Snapshot => self.missing_snapshot(&file.document, storage).await,
                // One that was removed may have left its file.
                RowKind::Webhook
                | RowKind::Pool
                | RowKind::Build
                | RowKind::Template
                | RowKind::Environment
                | RowKind::Volume
                    if !self.is_lost =>
                {
                    continue;
                }
                RowKind::Webhook
                | RowKind::Pool
                | RowKind::Build
                | RowKind::Template
                | RowKind::Environment
                | RowKind::Project
                | RowKind::Volume => rewrite(file.kind, &file.document),
                RowKind::ApiKey | RowKind::Request | RowKind::Operation | RowKind::Discard | RowKind::Event => continue,
            };
            // A file that something terminated or deleted left behind is not a finding.
            if !self.is_lost && matches!(remedy, Remedy::Nothing(_)) {
                continue;
            }
            let (kind, id) = (file.kind.to_string(), file.id.clone());
            return Some(Finding { kind, id, problem: NO_ROW.to_owned(), remedy });
        }
        None
    }

    async fn missing_snapshot(&self, document: &str, storage: &Storage) -> Remedy {
        let Ok(snapshot) = codec::decode_snapshot(document) else {
            return Remedy::Nothing("its record file cannot be used".to_owned());
        };
        if snapshot.status != SnapshotStatus::Completed || self.held().contains(&snapshot.saved_state) {
            return Remedy::Nothing("it was not complete, or its saved state belongs to another record".to_owned());
        }
        match storage.check(&snapshot.saved_state).await {
            Ok(_) => rewrite(RowKind::Snapshot, document),
            Err(error) => Remedy::Nothing(dorm_engine::chain(&error)),
        }
    }

    /// Finds a suspended sandbox whose image is missing or damaged, for example because an older
    /// database was restored. The remedy is another image that no record needs.
    async fn image_that_is_gone(&self, storage: &Storage) -> Option<Finding> {
        for record in &self.sandboxes {
            let State::Suspended { image, .. } = &record.sandbox.state else { continue };
            let id = &record.sandbox.id;
            if self.is_told("sandbox", id.as_str()) {
                continue;
            }
            let Err(StorageError::Missing(missing)) = storage.saved_state(&image.saved_state).await else { continue };
            let problem = format!("its image, saved state {missing} of generation {}, is missing", image.generation);
            let remedy = self.other_image(record, storage).await;
            return Some(Finding { kind: "sandbox".to_owned(), id: id.to_string(), problem, remedy });
        }
        None
    }

    async fn other_image(&self, record: &SandboxRecord, storage: &Storage) -> Remedy {
        let Some(found) = self.newest_image(&record.sandbox.id, storage).await else {
            return Remedy::Nothing("it has no other intact saved state".to_owned());
        };
        let mut record = record.clone();
        record.sandbox.generation = record.sandbox.generation.max(found.facts.generation);
        record.sandbox.state = State::Suspended { image: sleep_image(found), background: None };
        let unknown = vec!["changes to its settings since that record".to_owned()];
        Remedy::Rebuild {
            change: Box::new(Change { sandboxes: vec![record], ..Change::default() }),
            from: format!("saved state {} of generation {}", found.id, found.facts.generation),
            unknown,
        }
    }

    /// Finds a saved state without a record. This is a finding only if rows are lost; otherwise it
    /// has no record on purpose.
    async fn state_without_record(&self, storage: &Storage) -> Option<Finding> {
        if !self.is_lost {
            return None;
        }
        let held = self.held();
        let may_need = |id: &SavedStateId| self.unreadable.iter().any(|row| row.mentions(id.as_str()));
        for saved_state in &self.states {
            let id = saved_state.id.as_str();
            if held.contains(&saved_state.id) || may_need(&saved_state.id) || self.is_told("saved state", id) {
                continue;
            }
            let sandbox = &saved_state.facts.sandbox;
            let is_newest = self.images_of(sandbox).first().is_some_and(|newest| newest.id == saved_state.id);
            let has_sandbox = self.has_row(RowKind::Sandbox, sandbox.as_str());
            let remedy = match (saved_state.tree, is_newest && !has_sandbox) {
                (None, true) => self.sandbox(sandbox, 0, None, None, storage).await,
                // The newest one comes first; the others are then kept as snapshots.
                (None, false) if !has_sandbox && !self.is_told("saved state", newest_id(self, sandbox)) => continue,
                (_, _) => match (storage.check(&saved_state.id).await, id.parse::<SnapshotId>()) {
                    (Ok(_), Ok(snapshot)) => snapshot_of(snapshot, None, saved_state),
                    (Err(error), _) => Remedy::Nothing(dorm_engine::chain(&error)),
                    (_, Err(error)) => Remedy::Nothing(error.to_string()),
                },
            };
            let problem = format!("no record refers to this saved state of sandbox {sandbox}");
            return Some(Finding { kind: "saved state".to_owned(), id: id.to_owned(), problem, remedy });
        }
        None
    }
}

fn newest_id<'a>(facts: &'a Facts, sandbox: &SandboxId) -> &'a str {
    facts.images_of(sandbox).first().map_or("", |newest| newest.id.as_str())
}
