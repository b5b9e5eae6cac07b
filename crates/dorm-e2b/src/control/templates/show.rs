//! Templates as clients of E2B see them.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{Resources, TemplateId, TemplateName, Timestamp};
use dorm_service::{CreateFrom, Service, TemplateReference};
use dorm_store::{BuildRecord, BuildState, TemplateRecord, TemplateVersion};
use serde_json::json;

use super::super::show::cpus;
use super::super::{Call, page};
use super::wire::{BuildStatus, Template, TemplateBuild, time};
use super::{ids, known_tag, name_and_tag, no_template, own_name, source_of, template};
use crate::door::ENVD_VERSION;
use crate::error::Refusal;

const MEGABYTE: u64 = 1 << 20;

/// Tells whether a name is taken: by a template, by one that is being built, or by an image.
pub(super) async fn alias(alias: &str, call: Call) -> Result<Response, Refusal> {
    let service = call.service;
    let (name, _) = name_and_tag(alias);
    if let Some(found) = template(&service, name).await? {
        return Ok(Json(json!({ "templateID": found.id.to_string(), "public": found.is_public })).into_response());
    }
    let is_open = |build: &BuildRecord| !build.state.has_ended();
    if let Some(known) = built(&service, name).await?.filter(|known| known.builds.iter().any(is_open)) {
        return Ok(Json(json!({ "templateID": known.id.to_string(), "public": false })).into_response());
    }
    let source = source_of(&service, alias).await?;
    Ok(Json(json!({ "templateID": source.template_id, "public": false })).into_response())
}

/// Lists templates, in the order of their names. A query without `limit` gets all of them.
pub(super) async fn list(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let uri = request.uri();
    let limit = page::limit(uri)?;
    let after = page::after(uri, |name| Some(name.to_owned()))?;
    let builds = service.builds().await?;
    let all = service.templates().await?.into_iter();
    let mut rest = all.filter(|one| after.as_deref().is_none_or(|after| one.name.as_str() > after));
    let page: Vec<TemplateRecord> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
    let next = rest.next().and_then(|_| page.last()).map(|last| last.name.to_string());
    let mut shown = Vec::with_capacity(page.len());
    for template in page {
        let known = Known::of(template, &builds);
        shown.push(known.shown(&service).await);
    }
    Ok(page::response(&shown, next))
}

/// Describes a template with its builds.
pub(super) async fn one(id: &str, call: Call) -> Result<Response, Refusal> {
    let service = call.service;
    let (name, _) = name_and_tag(id);
    let known = match template(&service, name).await? {
        Some(template) => Some(Known::of(template, &service.builds().await?)),
        None => built(&service, name).await?,
    };
    let known = known.ok_or_else(|| no_template(id))?;
    let mut shown = known.shown(&service).await;
    shown.builds = Some(known.builds.iter().map(build).collect());
    Ok(Json(shown).into_response())
}

/// A template as it is known: its record, and the builds of it. One that is being built for the
/// first time has no record yet.
struct Known {
    id: TemplateId,
    name: TemplateName,
    is_public: bool,
    created: Timestamp,
    record: Option<TemplateRecord>,
    /// The newest first.
    builds: Vec<BuildRecord>,
}

impl Known {
    fn of(record: TemplateRecord, builds: &[BuildRecord]) -> Self {
        let builds = builds.iter().filter(|build| is_of(build, &record.name)).cloned().collect();
        let TemplateRecord { id, name, is_public, created, .. } = record.clone();
        Self { id, name, is_public, created, record: Some(record), builds }
    }

    /// The tag that a client gets without naming one, or else the one that was moved last.
    fn tag(&self) -> Option<(&str, &TemplateVersion)> {
        let record = self.record.as_ref()?;
        let newest = || record.tags.iter().max_by_key(|(_, version)| version.created).map(|(tag, _)| tag.as_str());
        let tag = known_tag(record, None).or_else(newest)?;
        record.tags.get(tag).map(|version| (tag, version))
    }

    async fn shown(&self, service: &Service) -> Template {
        let tag = self.tag();
        let newest = self.builds.first();
        let resources = match tag {
            Some((tag, _)) => {
                let from = TemplateReference { name: self.name.clone(), tag: tag.to_owned() };
                service.resources_of(&CreateFrom::Template(from)).await.unwrap_or_default()
            }
            None => newest.map(limits).unwrap_or_default(),
        };
        let tags = self.record.iter().flat_map(|record| record.tags.values());
        let updated = tags.map(|version| version.created).chain([self.created]).max();
        let build_id = match (tag, newest) {
            (Some((_, version)), _) => ids::of_version(version),
            (None, Some(build)) => ids::of_build(&build.id),
            (None, None) => String::new(),
        };
        let names = vec![self.name.to_string()];
        Template {
            template_id: self.id.to_string(),
            build_id,
            cpu_count: cpus(resources.cpu_millis),
            memory_mb: resources.memory_bytes / MEGABYTE,
            disk_size_mb: resources.disk_bytes / MEGABYTE,
            public: self.is_public,
            aliases: names.clone(),
            names,
            created_at: time(self.created),
            updated_at: time(updated.unwrap_or(self.created)),
            created_by: None,
            last_spawned_at: None,
            spawn_count: 0,
            build_count: self.builds.len(),
            envd_version: ENVD_VERSION,
            build_status: match (tag, newest) {
                (Some(_), _) | (None, None) => BuildStatus::Ready,
                (None, Some(build)) => status(&build.state),
            },
            is_default: false,
            builds: None,
        }
    }
}

/// Returns what is known of a template that has no record, by the builds of it.
async fn built(service: &Service, name: &str) -> Result<Option<Known>, Refusal> {
    let named = own_name(service, name);
    let mut of: Option<(TemplateId, TemplateName)> = None;
    let mut builds = Vec::new();
    for build in service.builds().await? {
        let Some(template) = &build.plan.template else { continue };
        let is_it = match &of {
            Some((_, name)) => template.name == *name,
            None => {
                let id = service.id_of_template(&template.name).await?;
                let is_it = template.name.as_str() == named || id.as_str() == named;
                of = is_it.then(|| (id, template.name.clone()));
                is_it
            }
        };
        builds.extend(is_it.then_some(build));
    }
    let created = builds.last().map(|build| build.created);
    Ok(of.zip(created).map(|((id, name), created)| Known { id, name, is_public: false, created, record: None, builds }))
}

fn is_of(build: &BuildRecord, name: &TemplateName) -> bool {
    build.plan.template.as_ref().is_some_and(|template| template.name == *name)
}

fn limits(build: &BuildRecord) -> Resources {
    build.plan.template.as_ref().and_then(|template| template.resources).unwrap_or_default()
}

fn build(build: &BuildRecord) -> TemplateBuild {
    let resources = limits(build);
    TemplateBuild {
        build_id: ids::of_build(&build.id),
        status: status(&build.state),
        created_at: time(build.created),
        updated_at: time(build.ended.or(build.began).unwrap_or(build.created)),
        finished_at: build.ended.map(time),
        cpu_count: cpus(resources.cpu_millis),
        memory_mb: resources.memory_bytes / MEGABYTE,
        disk_size_mb: resources.disk_bytes / MEGABYTE,
        envd_version: ENVD_VERSION,
    }
}

/// The state of a build, in the words of E2B.
pub(super) fn status(state: &BuildState) -> BuildStatus {
    match state {
        BuildState::Reserved | BuildState::Queued => BuildStatus::Waiting,
        BuildState::Running | BuildState::Finishing => BuildStatus::Building,
        BuildState::Succeeded => BuildStatus::Ready,
        BuildState::Failed(_) | BuildState::Cancelled => BuildStatus::Error,
    }
}
