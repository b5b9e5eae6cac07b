//! The known facts: readable records, record files, saved states with their manifests, and living
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dorm_engine_gvisor::NotedRun;
use dorm_lifecycle::{RunId, SandboxId, SavedStateId, SleepImage};
use dorm_storage::{SavedState, Storage, StorageError};
use dorm_store::{
    BuildRecord, EnvironmentRecord, OperationRecord, PoolRecord, ProjectRecord, RowKind, SandboxFilter, SandboxRecord,
    SnapshotRecord, SnapshotStatus, Store as _, TemplateRecord, UnreadableRow, VolumeRecord, WebhookRecord,
};
use dorm_store_sql::{FileCheck, SqlStore};

use super::swap::io_error;
use super::{Finding, Remedy, RepairError};
use crate::records::{DIRECTORY, RecordFile};

pub(super) struct Facts {
    pub(super) unreadable: Vec<UnreadableRow>,
    /// Including terminated ones.
    pub(super) sandboxes: Vec<SandboxRecord>,
    pub(super) snapshots: Vec<SnapshotRecord>,
    pub(super) operations: Vec<OperationRecord>,
    pub(super) webhooks: Vec<WebhookRecord>,
    pub(super) pools: Vec<PoolRecord>,
    pub(super) builds: Vec<BuildRecord>,
    pub(super) templates: Vec<TemplateRecord>,
    pub(super) environments: Vec<EnvironmentRecord>,
    pub(super) projects: Vec<ProjectRecord>,
    pub(super) volumes: Vec<VolumeRecord>,
    pub(super) discards: BTreeSet<SavedStateId>,
    pub(super) files: Vec<RecordFile>,
    unreadable_files: Vec<(String, String)>,
    /// The saved states whose manifest can be read.
    pub(super) states: Vec<SavedState>,
    unreadable_states: Vec<(String, StorageError)>,
    /// The newest living run of each sandbox.
    pub(super) runs: BTreeMap<SandboxId, RunId>,
    /// Whether rows may be missing.
    pub(super) is_lost: bool,
    /// The findings that [`Facts::next_gap`] has already returned.
    pub(super) told: BTreeSet<(String, String)>,
}

impl Facts {
    pub(super) async fn gather(
        store: &SqlStore,
        check: &FileCheck,
        storage: &Storage,
        data: &Path,
        is_lost: bool,
    ) -> Result<Self, RepairError> {
        let (files, unreadable_files) = RecordFile::all(data).map_err(io_error("list", &data.join(DIRECTORY)))?;
        let mut states = Vec::new();
        for id in storage.saved_states().await? {
            // The storage reports those that cannot be read.
            states.extend(storage.saved_state(&id).await);
        }
        let mut runs: BTreeMap<SandboxId, RunId> = BTreeMap::new();
        let engine = data.join("gvisor");
        let own = crate::identity::id(data);
        let noted = dorm_engine_gvisor::noted_runs(&engine).map_err(io_error("list", &engine))?;
        let is_own = |noted: &NotedRun| Some(&noted.owner) == own.as_ref();
        for run in noted.into_iter().filter(|noted| noted.is_alive && is_own(noted)).filter_map(|noted| noted.run) {
            let newest = runs.entry(run.sandbox.clone()).or_insert_with(|| run.clone());
            newest.generation = newest.generation.max(run.generation);
        }
        Ok(Self {
            unreadable: check.unreadable.clone(),
            sandboxes: store.sandboxes(&SandboxFilter::default()).await?,
            snapshots: store.snapshots(None).await?,
            operations: store.open_operations().await?,
            webhooks: store.webhooks().await?,
            pools: store.pools().await?,
            builds: store.builds().await?,
            templates: store.templates().await?,
            environments: store.environments().await?,
            projects: store.projects().await?,
            volumes: store.volumes().await?,
            discards: store.to_discard().await?.into_iter().collect(),
            files,
            unreadable_files: unreadable_files
                .into_iter()
                .map(|(path, what)| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), what))
                .collect(),
            states,
            unreadable_states: storage.unreadable().await?,
            runs,
            is_lost,
            told: BTreeSet::new(),
        })
    }

    /// Returns the manifests, images and record files that cannot be read. Nothing is rebuilt from
    /// them.
    pub(super) fn unreadable_findings(&self) -> Vec<Finding> {
        let states = self.unreadable_states.iter().map(|(what, error)| {
            let (kind, id) = what.rsplit_once(' ').unwrap_or(("saved state", what));
            Finding {
                kind: kind.to_owned(),
                id: id.to_owned(),
                problem: error.to_string(),
                remedy: Remedy::Nothing("it is kept; operations that need it fail and name it".to_owned()),
            }
        });
        let files = self.unreadable_files.iter().map(|(file, what)| Finding {
            kind: "record file".to_owned(),
            id: file.clone(),
            problem: what.clone(),
            remedy: Remedy::Anew("the daemon writes it again when it starts".to_owned()),
        });
        states.chain(files).collect()
    }

    pub(super) fn file(&self, kind: RowKind, id: &str) -> Option<&RecordFile> {
        self.files.iter().find(|file| file.kind == kind && file.id == id)
    }

    /// Returns the saved states that a readable record needs or that are pending deletion.
    pub(super) fn held(&self) -> BTreeSet<SavedStateId> {
        let mut held = self.discards.clone();
        held.extend(self.operations.iter().filter_map(|operation| operation.saved_state.clone()));
        for SandboxRecord { sandbox, .. } in &self.sandboxes {
            held.extend(sandbox.saved_states().chain(sandbox.layers()).cloned());
        }
        for snapshot in &self.snapshots {
            if !matches!(snapshot.status, SnapshotStatus::Failed(_)) {
                held.insert(snapshot.saved_state.clone());
                held.extend(snapshot.layer.clone());
            }
        }
        held
    }

    /// Returns the saved states of a sandbox's memory that nothing else needs, the newest first.
    pub(super) fn images_of(&self, sandbox: &SandboxId) -> Vec<&SavedState> {
        let held = self.held();
        let of_snapshots: BTreeSet<&str> = self
            .files
            .iter()
            .filter(|file| file.kind == RowKind::Snapshot)
            .map(|file| file.document.as_str())
            .collect();
        let is_free = |saved_state: &&SavedState| {
            let id = saved_state.id.as_str();
            saved_state.facts.sandbox == *sandbox
                && saved_state.tree.is_none()
                && !held.contains(&saved_state.id)
                && !of_snapshots.iter().any(|document| document.contains(id))
        };
        let mut images: Vec<_> = self.states.iter().filter(is_free).collect();
        images.sort_by_key(|saved_state| std::cmp::Reverse((saved_state.facts.generation, saved_state.facts.taken)));
        images
    }

    /// Returns the newest of these images whose data is verified completely.
    pub(super) async fn newest_image(&self, sandbox: &SandboxId, storage: &Storage) -> Option<&SavedState> {
        for saved_state in self.images_of(sandbox) {
            if storage.check(&saved_state.id).await.is_ok() {
                return Some(saved_state);
            }
        }
        None
    }
}

/// Returns a saved state as the sleep image of a sandbox.
pub(super) fn sleep_image(saved_state: &SavedState) -> SleepImage {
    SleepImage {
        saved_state: saved_state.id.clone(),
        generation: saved_state.facts.generation,
        taken: saved_state.facts.taken,
        bytes: saved_state.bytes(),
        files: None,
    }
}
