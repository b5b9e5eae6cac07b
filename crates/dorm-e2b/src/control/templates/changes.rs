//! Changes of templates: whether they are published, and their deletion.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{SnapshotId, TemplateName};
use dorm_service::{CreateFrom, Service, ServiceError};
use dorm_store::TemplateSource;
use serde_json::json;

use super::super::Call;
use super::wire::Publication;
use super::{DEFAULT_TAG, known_tag, name_and_tag, no_tag, no_template, source_of, template};
use crate::error::Refusal;
use crate::text;

/// Answers a request to publish a template, or to withdraw it.
pub(super) async fn publish(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: Publication = text::json(request).await?;
    let found = template(&service, name_and_tag(id).0).await?.ok_or_else(|| no_template(id))?;
    let found = match asked.public {
        Some(public) => service.publish_template(found.name.as_str(), public).await?,
        None => found,
    };
    Ok(Json(json!({ "names": [found.name.to_string()] })).into_response())
}

/// Answers a request to delete a template, one tag of it, or a snapshot.
pub(super) async fn delete(id: &str, call: Call) -> Result<Response, Refusal> {
    let service = call.service;
    let (name, tag) = name_and_tag(id);
    let Some(found) = template(&service, name).await? else { return delete_snapshot(&service, id).await };
    if tag.is_none() {
        cancel_builds(&service, &found.name).await?;
    }
    let tags: Vec<String> = match tag {
        Some(tag) => vec![known_tag(&found, Some(tag)).ok_or_else(|| no_tag(tag, name))?.to_owned()],
        None => found.tags.keys().cloned().collect(),
    };
    // The snapshots first: each is kept while a tag stands for it, and a request that is repeated
    // after this daemon has died removes what is left.
    for version in tags.iter().filter_map(|tag| found.tags.get(tag)) {
        if let (None, TemplateSource::Snapshot(snapshot)) = (&version.build, &version.source) {
            delete_when_free(&service, snapshot).await?;
        }
    }
    service.remove_template_tags(found.name.as_str(), &tags).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Cancels the builds that would bring a deleted template back.
async fn cancel_builds(service: &Service, name: &TemplateName) -> Result<(), Refusal> {
    for build in service.builds().await? {
        if !build.state.has_ended() && build.plan.template.is_some_and(|template| template.name == *name) {
            service.cancel_build(&build.id).await?;
        }
    }
    Ok(())
}

async fn delete_snapshot(service: &Service, id: &str) -> Result<Response, Refusal> {
    match source_of(service, id).await?.from {
        CreateFrom::Snapshot(snapshot) => {
            delete_when_free(service, &snapshot).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        CreateFrom::Template(reference) => Err(no_tag(DEFAULT_TAG, reference.name.as_str())),
        CreateFrom::Image(_) => {
            Err(Refusal::conflict(format!("'{id}' is an image, not a template: remove it with `dorm image rm {id}`")))
        }
    }
}

async fn delete_when_free(service: &Service, snapshot: &SnapshotId) -> Result<(), Refusal> {
    match service.delete_snapshot_when_free(snapshot).await {
        Ok(()) | Err(ServiceError::NoSnapshot(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
