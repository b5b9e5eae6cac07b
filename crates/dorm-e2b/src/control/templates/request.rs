//! Requests for builds. The build is reserved; its steps follow.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::Resources;
use dorm_service::{BuildProblem, ServiceError};
use dorm_store::{BuildResources, BuildTemplate};

use super::super::Call;
use super::wire::{BuildRequest, BuildRequested};
use super::{DEFAULT_TAG, ids, name_and_tag, own_name, template};
use crate::error::Refusal;
use crate::text;

/// The limits that E2B gives to sandboxes of a template without other ones.
const CPUS: i64 = 2;
const MEMORY_MB: i64 = 1024;

/// Answers a request for a build.
pub(super) async fn request(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: BuildRequest = text::json(request).await?;
    let limits = limits(&asked)?;
    let named = asked.name.or(asked.alias).filter(|name| !name.trim().is_empty());
    let named = named.ok_or_else(|| Refusal::invalid("a build needs the name of its template"))?;
    let (name, tag) = name_and_tag(&named);
    let mut tags: Vec<String> = tag.map(str::to_owned).into_iter().chain(asked.tags.unwrap_or_default()).collect();
    if tags.is_empty() {
        tags.push(DEFAULT_TAG.to_owned());
    }
    tags.sort();
    tags.dedup();
    let name = own_name(&service, name);
    let name: dorm_lifecycle::TemplateName =
        name.parse().map_err(|error: dorm_lifecycle::IdError| Refusal::invalid(error.to_string()))?;
    let template_id = service.id_of_template(&name).await?;
    let public = template(&service, name.as_str()).await?.is_some_and(|template| template.is_public);
    let asked = BuildTemplate {
        name: name.clone(),
        tags: tags.clone(),
        resources: Some(limits),
        variables: Default::default(),
    };
    let of_steps = BuildResources {
        cpu_millis: Some(limits.cpu_millis),
        memory_bytes: Some(limits.memory_bytes),
        disk_bytes: Some(limits.disk_bytes),
    };
    let build = service.reserve_build(asked, of_steps).await.map_err(too_many)?;
    let names = vec![name.to_string()];
    let answer = BuildRequested {
        template_id: template_id.to_string(),
        build_id: ids::of_build(&build.id),
        public,
        names: names.clone(),
        tags,
        aliases: names,
    };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// The refusal of a build: one too many is refused as E2B does it.
pub(super) fn too_many(error: ServiceError) -> Refusal {
    match &error {
        ServiceError::Build(BuildProblem::Many(_)) => {
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, format!("{}; {}", error.message(), error.next_step()))
        }
        _ => error.into(),
    }
}

/// The limits of the sandboxes of a template, and of those of its steps.
fn limits(asked: &BuildRequest) -> Result<Resources, Refusal> {
    let default = Resources::default();
    let bad = |what: &str, value: i64| Refusal::invalid(format!("{what} is {value}: this server cannot provide that"));
    let cpus = asked.cpu_count.unwrap_or(CPUS);
    let memory = asked.memory_mb.unwrap_or(MEMORY_MB);
    let disk = asked.min_free_disk_mb.unwrap_or(0);
    let bytes = |megabytes: i64| u64::try_from(megabytes).ok()?.checked_mul(1 << 20);
    let cpu_millis = u32::try_from(cpus).ok().and_then(|cpus| cpus.checked_mul(1000));
    let limits = Resources {
        cpu_millis: cpu_millis.ok_or_else(|| bad("cpuCount", cpus))?,
        memory_bytes: bytes(memory).ok_or_else(|| bad("memoryMB", memory))?,
        disk_bytes: bytes(disk).ok_or_else(|| bad("minFreeDiskMb", disk))?.max(default.disk_bytes),
        ..default
    };
    limits.check()?;
    Ok(limits)
}
