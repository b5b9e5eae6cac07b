//! Snapshots and forks.
//!
//! A snapshot with a name is a memory snapshot to which a tag of a template of that name points, so
//! a name can be used again, and stands for the newest one.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{SnapshotId, SnapshotKind, StateName, Timeouts, Timestamp};
use dorm_service::{
    BUILD_LABEL, CheckpointSpec, CreateFrom, FollowingVolumes, ForkChildSpec, ForkSpec, Service, TemplateSpec,
};
use dorm_store::{Maker, OnPartialFailure, Removal, SnapshotFilter, SnapshotRecord, SnapshotStatus};
use serde::Deserialize;
use serde_json::json;

use super::create::timeout;
use super::wire::Snapshot;
use super::{Call, Version, existing, page, show, templates};
use crate::door::E2b;
use crate::error::Refusal;
use crate::text::{self, parameter};

/// The most copies of one fork.
const FORK_MAX: usize = 20;

#[derive(Deserialize)]
struct SnapshotRequest {
    name: Option<String>,
    memory: Option<bool>,
}

/// Answers a request for a snapshot of a running sandbox, which continues.
pub(super) async fn take(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: SnapshotRequest = text::json(request).await?;
    let name = asked.name.filter(|name| !name.is_empty());
    let tag = name.as_deref().map(|name| templates::reference(&service, name)).transpose()?;
    let (sandbox, view) = existing(&service, id).await?;
    if matches!(view.sandbox.state.name(), StateName::Suspended | StateName::Suspending) {
        return Err(Refusal::conflict(format!("Sandbox '{sandbox}' is paused: connect to it first")));
    }
    let kind = if asked.memory == Some(false) { SnapshotKind::Filesystem } else { SnapshotKind::Memory };
    let spec = CheckpointSpec { kind, ..CheckpointSpec::default() };
    let taken = service.checkpoint_as(&sandbox, spec).await.map_err(|error| Refusal::of(&sandbox, error))?;
    if let Some(tag) = &tag {
        let from = CreateFrom::Snapshot(taken.id.clone());
        let (name, tags) = (tag.name.clone(), vec![tag.tag.clone()]);
        let spec = TemplateSpec { name, tags, from, resources: None, variables: Default::default(), program: None };
        service.put_template(spec).await?;
    }
    let names = Names::of(&service).await?;
    Ok((StatusCode::CREATED, Json(names.shown(&taken))).into_response())
}

/// Answers a request for a page of snapshots, the newest first.
pub(super) async fn list(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let uri = request.uri();
    let limit = page::limit(uri)?.unwrap_or(page::PAGE_MAX);
    let source = match parameter(uri, "sandboxID")?.filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => match super::sandbox_id(&id) {
            Some(id) => Some(id),
            None => return Ok(Json(Vec::<Snapshot>::new()).into_response()),
        },
    };
    let after = page::after(uri, read_place)?;
    let name = parameter(uri, "name")?.filter(|name| !name.is_empty());
    let names = Names::of(&service).await?;
    let filter = SnapshotFilter {
        project: Some(service.project().clone()),
        source,
        made_by: Some(Maker::Request),
        ..SnapshotFilter::default()
    };
    let all = service.snapshot_page(&SnapshotFilter { limit: usize::MAX - 1, ..filter }).await?.snapshots;
    let is_before = |one: &SnapshotRecord| after.as_ref().is_none_or(|(at, id)| (one.created, &one.id) < (*at, id));
    let is_named = |one: &SnapshotRecord| name.as_ref().is_none_or(|name| names.has(&one.id, name));
    let mut found = all.into_iter().rev().filter(|one| is_shown(one) && is_before(one) && is_named(one));
    let page: Vec<SnapshotRecord> = found.by_ref().take(limit).collect();
    let last = found.next().and_then(|_| page.last());
    let next = last.map(|last| format!("{}__{}", last.created.as_millis(), last.id));
    let shown: Vec<Snapshot> = page.iter().map(|one| names.shown(one)).collect();
    Ok(page::response(&shown, next))
}

/// Whether clients are shown a snapshot: one that a user asked for and that is complete. The steps
/// of builds are snapshots, too.
fn is_shown(snapshot: &SnapshotRecord) -> bool {
    snapshot.status == SnapshotStatus::Completed
        && snapshot.removal != Removal::WhenFree
        && !snapshot.labels.contains_key(BUILD_LABEL)
}

fn read_place(text: &str) -> Option<(Timestamp, SnapshotId)> {
    let (at, id) = text.split_once("__")?;
    Some((Timestamp::from_millis(at.parse().ok()?), id.parse().ok()?))
}

/// The names of snapshots: the tags of templates that point to them.
pub(super) struct Names(Vec<(SnapshotId, String)>);

impl Names {
    pub(super) async fn of(service: &Service) -> Result<Self, Refusal> {
        let mut names = Vec::new();
        for template in service.templates().await? {
            for (tag, version) in &template.tags {
                if let dorm_store::TemplateSource::Snapshot(snapshot) = &version.source {
                    names.push((snapshot.clone(), templates::shown_name(template.name.as_str(), tag)));
                }
            }
        }
        Ok(Self(names))
    }

    fn of_one(&self, snapshot: &SnapshotId) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(of, _)| of == snapshot).map(|(_, name)| name)
    }

    /// Whether a snapshot has this name, with or without its tag.
    fn has(&self, snapshot: &SnapshotId, name: &str) -> bool {
        self.of_one(snapshot).any(|one| one == name || one.split(':').next() == Some(name))
    }

    fn shown(&self, snapshot: &SnapshotRecord) -> Snapshot {
        let names: Vec<String> = self.of_one(&snapshot.id).cloned().collect();
        let unnamed = || format!("{}:{}", snapshot.id, templates::DEFAULT_TAG);
        Snapshot { snapshot_id: names.first().cloned().unwrap_or_else(unnamed), names }
    }
}

#[derive(Deserialize)]
struct ForkRequest {
    timeout: Option<i64>,
    count: Option<i64>,
}

/// Answers a request for copies of a running sandbox. A copy that could not be made is an error in
/// the list.
pub(super) async fn fork(door: &E2b, id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let domain = show::domain(door, request.headers());
    let asked: ForkRequest = text::json(request).await?;
    let total = timeout(asked.timeout.unwrap_or(Version::First.timeout_by_default()))?;
    let count = usize::try_from(asked.count.unwrap_or(1)).unwrap_or(0);
    if !(1..=FORK_MAX).contains(&count) {
        return Err(Refusal::invalid(format!("count must be 1 to {FORK_MAX}")));
    }
    let (sandbox, view) = existing(&service, id).await?;
    if matches!(view.sandbox.state.name(), StateName::Suspended | StateName::Suspending) {
        return Err(Refusal::conflict(format!("Sandbox '{sandbox}' is paused: connect to it first")));
    }
    let timeouts = Timeouts { total: Some(total), ..Timeouts::default() };
    let child = ForkChildSpec { timeouts, ..ForkChildSpec::default() };
    let spec = ForkSpec {
        children: vec![child; count],
        on_partial_failure: OnPartialFailure::Keep,
        volumes: FollowingVolumes::Same,
    };
    let made = service.fork(&sandbox, spec).await.map_err(|error| Refusal::of(&sandbox, error))?;
    let shown = made.into_iter().map(|made| match made {
        Ok(view) => json!({ "sandbox": show::sandbox(&service, &view, domain.clone()) }),
        Err(error) => {
            let refusal = Refusal::from(error);
            json!({ "error": { "code": refusal.status().as_u16(), "message": refusal.message() } })
        }
    });
    Ok((StatusCode::CREATED, Json(shown.collect::<Vec<_>>())).into_response())
}
