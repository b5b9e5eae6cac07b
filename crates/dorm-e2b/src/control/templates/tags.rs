//! Tags of templates.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_service::TemplateReference;
use serde_json::json;

use super::super::Call;
use super::wire::{Tag, TagsToAssign, TagsToRemove, time};
use super::{DEFAULT_TAG, ids, known_tag, name_and_tag, no_tag, no_template, template};
use crate::error::Refusal;
use crate::text;

/// Makes tags stand for what another one stands for.
pub(super) async fn assign(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let TagsToAssign { target, tags } = text::json(request).await?;
    let (name, tag) = name_and_tag(&target);
    let found = template(&service, name).await?.ok_or_else(|| no_template(name))?;
    let tag = known_tag(&found, tag).ok_or_else(|| no_tag(tag.unwrap_or(DEFAULT_TAG), name))?;
    let version = found.tags.get(tag).ok_or_else(|| no_tag(tag, name))?;
    let build_id = ids::of_version(version);
    let from = TemplateReference { name: found.name.clone(), tag: tag.to_owned() };
    service.tag_template(&from, tags.clone()).await?;
    Ok((StatusCode::CREATED, Json(json!({ "tags": tags, "buildID": build_id }))).into_response())
}

/// Removes tags; if one is missing, it removes none.
pub(super) async fn remove(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let TagsToRemove { name: named, tags } = text::json(request).await?;
    let (name, _) = name_and_tag(&named);
    let found = template(&service, name).await?.ok_or_else(|| no_template(name))?;
    if let Some(missing) = tags.iter().find(|tag| !found.tags.contains_key(*tag)) {
        return Err(no_tag(missing, name));
    }
    service.remove_template_tags(found.name.as_str(), &tags).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lists the tags of a template.
pub(super) async fn list(id: &str, call: Call) -> Result<Response, Refusal> {
    let found = template(&call.service, name_and_tag(id).0).await?.ok_or_else(|| no_template(id))?;
    let shown = found.tags.iter().map(|(tag, version)| Tag {
        tag: tag.clone(),
        build_id: ids::of_version(version),
        created_at: time(version.created),
    });
    Ok(Json(shown.collect::<Vec<_>>()).into_response())
}

/// Counts the tags of a template.
pub(super) async fn count(id: &str, call: Call) -> Result<Response, Refusal> {
    let found = template(&call.service, id).await?.ok_or_else(|| no_template(id))?;
    Ok(Json(json!({ "total": found.tags.len() })).into_response())
}

/// Tells whether a template has a tag.
pub(super) async fn exists(id: &str, call: Call) -> Result<Response, Refusal> {
    let tag = text::parameter(call.request.uri(), "tag")?.ok_or_else(|| Refusal::invalid("give a tag"))?;
    let found = template(&call.service, id).await?.ok_or_else(|| no_template(id))?;
    Ok(Json(json!({ "exists": found.tags.contains_key(&tag), "normalizedTag": tag })).into_response())
}
