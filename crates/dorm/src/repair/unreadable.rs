//! Rebuilds the records of rows that cannot be read.

use dorm_lifecycle::{
    Egress, InheritedSettings, OnTimeout, Origin, ProjectId, Restored, RunId, Sandbox, SandboxId, SandboxSpec,
    SnapshotId, SnapshotKind, State,
};
use dorm_storage::{SavedState, Storage};
use dorm_store::{
    Change, Maker, Removal, RowKind, SandboxRecord, SnapshotRecord, SnapshotStatus, UnreadableRow, codec,
};

use super::facts::{Facts, sleep_image};
use super::{Remedy, is_history};

impl Facts {
    /// Returns the remedy for a row that cannot be read.
    pub(super) async fn rebuild(&self, row: &UnreadableRow, storage: &Storage) -> Remedy {
        match row.kind {
            RowKind::Sandbox => self.rebuild_sandbox(row, storage).await,
            RowKind::Snapshot => self.rebuild_snapshot(row, storage).await,
            RowKind::Webhook
            | RowKind::Pool
            | RowKind::Build
            | RowKind::Template
            | RowKind::Environment
            | RowKind::Project
            | RowKind::Volume => match self.file(row.kind, &row.id) {
                Some(file) => rewrite(row.kind, &file.document),
                None => Remedy::Nothing("it has no record file".to_owned()),
            },
            // Keys have no record files on purpose: a revoked key must not come back.
            RowKind::ApiKey => Remedy::Nothing("it permits nothing; create another one".to_owned()),
            RowKind::Request => {
                Remedy::Nothing("a retry of that request is refused; send it with another key".to_owned())
            }
            RowKind::Operation => {
                Remedy::Nothing("what it was doing is unknown; `--quarantine` abandons it".to_owned())
            }
            RowKind::Discard => Remedy::Nothing("which saved state to delete is unknown; none is deleted".to_owned()),
            RowKind::Event if is_history(row.kind) => {
                Remedy::Nothing("it is only history, and nothing depends on it".to_owned())
            }
            RowKind::Event => Remedy::Nothing(String::new()),
        }
    }

    async fn rebuild_sandbox(&self, row: &UnreadableRow, storage: &Storage) -> Remedy {
        let Ok(id) = row.id.parse::<SandboxId>() else {
            return Remedy::Nothing("its key is damaged, so the sandbox is unknown".to_owned());
        };
        let revision = row.revision.unwrap_or_default();
        self.sandbox(&id, revision, row.project.clone(), row.name.clone(), storage).await
    }

    /// Returns a record for the sandbox `id`: its record file as it is if nothing has happened
    /// since, or updated with its newest image and its living run; without a file, from its newest
    /// image alone.
    pub(super) async fn sandbox(
        &self,
        id: &SandboxId,
        revision: u64,
        project: Option<ProjectId>,
        name: Option<dorm_lifecycle::Name>,
        storage: &Storage,
    ) -> Remedy {
        let file = self.file(RowKind::Sandbox, id.as_str());
        let recorded = file.and_then(|file| Some((file.revision, codec::decode_sandbox(&file.document).ok()?)));
        if let Some((of, sandbox)) = &recorded
            && *of == revision
        {
            let from = "its record file, which has the revision of the row".to_owned();
            return rebuilt(sandbox.clone(), revision, from, Vec::new());
        }
        let image = self.newest_image(id, storage).await;
        let run = self.runs.get(id);
        let mut unknown = Vec::new();
        let (mut sandbox, mut from) = match (recorded, image) {
            (Some((of, sandbox)), _) => {
                if revision > 0 {
                    unknown.push(format!("changes to its settings after revision {of} of {revision}"));
                }
                (sandbox, format!("its record file of revision {of}"))
            }
            (None, Some(image)) => {
                unknown.extend(UNKNOWN.map(str::to_owned));
                (bare(id, project, name, image), String::new())
            }
            (None, None) => {
                return Remedy::Nothing("it has neither a record file nor an intact saved state".to_owned());
            }
        };
        settle(&mut sandbox, image, run);
        if let Some(image) = image.filter(|image| sandbox.state.image().is_some_and(|own| own.saved_state == image.id))
        {
            let and = if from.is_empty() { "" } else { " and " };
            from = format!("{from}{and}saved state {} of generation {}", image.id, image.facts.generation);
        }
        if let (Some(run), State::Running { .. }) = (run, &sandbox.state) {
            from = format!("{from} and its living run {run}");
        }
        match sandbox.state {
            State::Running { .. } if run.is_some() => rebuilt(sandbox, revision, from, unknown),
            State::Suspended { .. } => rebuilt(sandbox, revision, from, unknown),
            _ => Remedy::Nothing(format!(
                "its record file says that it is {}, but nothing of it is left",
                sandbox.state.name()
            )),
        }
    }

    async fn rebuild_snapshot(&self, row: &UnreadableRow, storage: &Storage) -> Remedy {
        if let Some(file) = self.file(RowKind::Snapshot, &row.id) {
            return rewrite(RowKind::Snapshot, &file.document);
        }
        let Ok(id) = row.id.parse::<SnapshotId>() else {
            return Remedy::Nothing("its key is damaged, so the snapshot is unknown".to_owned());
        };
        let held = self.held();
        let mut mentioned = self.states.iter().filter(|one| row.mentions(one.id.as_str()) && !held.contains(&one.id));
        match (mentioned.next(), mentioned.next()) {
            (Some(saved_state), None) if storage.check(&saved_state.id).await.is_ok() => {
                snapshot_of(id, row.project.clone(), saved_state)
            }
            (_, _) => Remedy::Nothing("it has no record file, and its row names no intact saved state".to_owned()),
        }
    }
}

/// The settings of a sandbox that no manifest contains, and what is recorded instead.
const UNKNOWN: [&str; 5] = [
    "its time limits: none",
    "where it may connect to: nowhere",
    "its variables, secrets and labels: none",
    "its volumes: none",
    "its checkpoint policy: none",
];

/// Returns a sandbox of which only a saved state is known. It has no time limits and may not
/// connect to anything.
fn bare(id: &SandboxId, project: Option<ProjectId>, name: Option<dorm_lifecycle::Name>, image: &SavedState) -> Sandbox {
    let facts = &image.facts;
    let name = name.or_else(|| format!("repaired-{}", &id.as_str()[..8]).parse().ok());
    let mut spec = SandboxSpec::new(facts.image.clone(), name);
    spec.layer = facts.layer.clone();
    spec.resources = facts.resources;
    spec.egress = Egress::Allow(Vec::new());
    spec.on_timeout = OnTimeout::Suspend;
    spec.suspendable = true;
    Sandbox {
        id: id.clone(),
        project: project.unwrap_or_else(ProjectId::local),
        spec,
        origin: Origin::Image,
        created: facts.taken,
        generation: facts.generation.max(1),
        run: facts.generation.max(1),
        last_active: facts.taken,
        timeouts_set: facts.taken,
        started: None,
        woken: false,
        holds: Vec::new(),
        restored: Restored::Nothing,
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        pool: None,
        created_by: None,
        state: State::Suspended { image: sleep_image(image), background: None },
    }
}

/// Puts a sandbox into the state that the facts show: its living run, or its newest image.
fn settle(sandbox: &mut Sandbox, image: Option<&SavedState>, run: Option<&RunId>) {
    let known = sandbox.state.image().cloned();
    let newest = match (known, image.map(sleep_image)) {
        (Some(known), Some(found)) if found.generation > known.generation => Some(found),
        (Some(known), _) => Some(known),
        (None, found) => found,
    };
    if let Some(run) = run.filter(|run| run.generation >= sandbox.run) {
        // If there is an image of the run, its suspend was recorded, or was about to be.
        let sleeps = newest.as_ref().is_some_and(|image| image.generation >= run.generation);
        sandbox.generation = sandbox.generation.max(run.generation);
        sandbox.run = run.generation;
        sandbox.state = match newest {
            Some(image) if sleeps => State::Suspended { image, background: None },
            image => State::Running { since: sandbox.last_active, image, background: None },
        };
    } else if let Some(image) = newest {
        sandbox.generation = sandbox.generation.max(image.generation).max(1);
        sandbox.state = State::Suspended { image, background: None };
    }
    let own = sandbox.state.image().map(|image| image.saved_state.clone());
    sandbox.older.retain(|older| Some(&older.saved_state) != own.as_ref());
}

fn rebuilt(sandbox: Sandbox, revision: u64, from: String, unknown: Vec<String>) -> Remedy {
    let change = Change { sandboxes: vec![SandboxRecord { sandbox, revision }], ..Change::default() };
    Remedy::Rebuild { change: Box::new(change), from, unknown }
}

/// Returns a record of a snapshot, from its saved state.
pub(super) fn snapshot_of(id: SnapshotId, project: Option<ProjectId>, saved_state: &SavedState) -> Remedy {
    let facts = &saved_state.facts;
    let record = SnapshotRecord {
        id,
        project: project.unwrap_or_else(ProjectId::local),
        name: None,
        source: facts.sandbox.clone(),
        generation: facts.generation,
        parent: None,
        kind: if saved_state.tree.is_some() { SnapshotKind::Filesystem } else { SnapshotKind::Memory },
        saved_state: saved_state.id.clone(),
        image: facts.image.clone(),
        layer: facts.layer.clone(),
        resources: facts.resources,
        inherited: Some(InheritedSettings::closed()),
        created: facts.taken,
        bytes: saved_state.bytes(),
        shares_data: false,
        labels: [("repaired".to_owned(), "true".to_owned())].into(),
        removal: Removal::Asked,
        made_by: Maker::Request,
        status: SnapshotStatus::Completed,
    };
    Remedy::Rebuild {
        change: Box::new(Change { snapshots: vec![record], ..Change::default() }),
        from: format!("saved state {}", saved_state.id),
        unknown: vec![
            "its name, labels and parent, and whether it shares its data".to_owned(),
            "what sandboxes made from it inherit: they may connect to nowhere, and their ports are private".to_owned(),
            "when it expires: never".to_owned(),
        ],
    }
}

/// Returns the record in a record file, unchanged.
pub(super) fn rewrite(kind: RowKind, document: &str) -> Remedy {
    let change = match kind {
        RowKind::Snapshot => {
            codec::decode_snapshot(document).map(|snapshot| Change { snapshots: vec![snapshot], ..Change::default() })
        }
        RowKind::Webhook => {
            codec::decode_webhook(document).map(|webhook| Change { webhooks: vec![webhook], ..Change::default() })
        }
        RowKind::Pool => codec::decode_pool(document).map(|pool| Change { pools: vec![pool], ..Change::default() }),
        RowKind::Build => {
            codec::decode_build(document).map(|build| Change { builds: vec![build], ..Change::default() })
        }
        RowKind::Template => {
            codec::decode_template(document).map(|one| Change { templates: vec![one], ..Change::default() })
        }
        RowKind::Environment => {
            codec::decode_environment(document).map(|one| Change { environments: vec![one], ..Change::default() })
        }
        RowKind::Project => {
            codec::decode_project(document).map(|project| Change { projects: vec![project], ..Change::default() })
        }
        RowKind::Volume => {
            codec::decode_volume(document).map(|volume| Change { volumes: vec![volume], ..Change::default() })
        }
        RowKind::Sandbox
        | RowKind::ApiKey
        | RowKind::Request
        | RowKind::Operation
        | RowKind::Discard
        | RowKind::Event => {
            return Remedy::Nothing("there are no record files of this kind".to_owned());
        }
    };
    match change {
        Ok(change) => {
            Remedy::Rebuild { change: Box::new(change), from: "its record file".to_owned(), unknown: Vec::new() }
        }
        Err(error) => Remedy::Nothing(format!("its record file cannot be used: {error}")),
    }
}
