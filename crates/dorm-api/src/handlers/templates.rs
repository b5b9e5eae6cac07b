//! Templates.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::{CreateFrom, DEFAULT_TAG, TemplateReference, TemplateSpec};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, parameter};
use crate::page::PageQuery;
use crate::state::Api;

/// The template of `{template}`, by name or id.
pub(crate) struct Template(String);

impl FromRequestParts<Api> for Template {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        parameter(parts, api, "template").await.map(Self)
    }
}

/// Create a template, or move its tags
///
/// A template is a name with tags, each of which stands for an image or a snapshot with the
/// settings of its sandboxes. All tags of the request are moved at once. A template whose program
/// already runs is made by a build.
#[utoipa::path(post, path = "/v1/templates", operation_id = "createTemplate", tag = "templates",
    request_body = wire::CreateTemplate,
    responses(
        (status = 200, description = "The template.", body = wire::Template),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateTemplate>,
) -> Result<axum::Json<wire::Template>, ApiError> {
    let from = match (asked.image, asked.snapshot) {
        (Some(image), None) => CreateFrom::Image(image),
        (None, Some(id)) => {
            let id = id.parse().map_err(|error: IdError| ApiError::invalid(format!("snapshot: {error}"), ""))?;
            CreateFrom::Snapshot(id)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::invalid("give exactly one of image and snapshot", "list images with GET /v1/images"));
        }
    };
    let resources = match asked.resources {
        Some(asked) => Some(convert::resources(asked, service.resources_of(&from).await?)),
        None => None,
    };
    let spec = TemplateSpec {
        name: convert::template_name(&asked.name)?,
        tags: convert::tags_or_default(asked.tags),
        from,
        resources,
        variables: asked.env,
        program: asked.start.map(Convert::convert),
    };
    Ok(axum::Json(service.put_template(spec).await?.convert()))
}

/// List templates
///
/// Ordered by name.
#[utoipa::path(get, path = "/v1/templates", operation_id = "listTemplates", tag = "templates", params(PageQuery),
    responses(
        (status = 200, description = "One page of templates.", body = wire::TemplateList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::TemplateList>, ApiError> {
    let (templates, next) = query.of(service.templates().await?, |template| template.name.clone())?;
    Ok(axum::Json(wire::TemplateList { templates: templates.into_iter().map(Convert::convert).collect(), next }))
}

/// Get a template
#[utoipa::path(get, path = "/v1/templates/{template}", operation_id = "getTemplate", tag = "templates",
    params(("template" = String, Path, description = "Name or ID of the template.")),
    responses(
        (status = 200, description = "The template.", body = wire::Template),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Template(name): Template,
) -> Result<axum::Json<wire::Template>, ApiError> {
    Ok(axum::Json(service.template(&name).await?.convert()))
}

/// Tag a template
///
/// Makes further tags stand for what a tag stands for. A create of a sandbox gets what the tag
/// stood for before or after, never a mixture.
#[utoipa::path(post, path = "/v1/templates/{template}/tags", operation_id = "tagTemplate", tag = "templates",
    request_body = wire::TagTemplate,
    params(("template" = String, Path, description = "Name of the template.")),
    responses(
        (status = 200, description = "The template.", body = wire::Template),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn tag(
    ForRequest(service): ForRequest,
    Template(name): Template,
    Json(asked): Json<wire::TagTemplate>,
) -> Result<axum::Json<wire::Template>, ApiError> {
    let from = if asked.from.is_empty() { DEFAULT_TAG.to_owned() } else { asked.from };
    let from = TemplateReference { name: convert::template_name(&name)?, tag: from };
    Ok(axum::Json(service.tag_template(&from, asked.tags).await?.convert()))
}

/// The part to delete.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// Only this tag. A template without tags is deleted.
    tag: Option<String>,
}

/// Delete a template, or a tag of it
///
/// Sandboxes that were created from it are not affected. A snapshot that a build has made for it is
/// deleted when no tag stands for it.
#[utoipa::path(delete, path = "/v1/templates/{template}", operation_id = "deleteTemplate", tag = "templates",
    params(("template" = String, Path, description = "Name or ID of the template."), DeleteQuery),
    responses(
        (status = 204, description = "It is deleted."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(
    ForRequest(service): ForRequest,
    Template(name): Template,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    service.remove_template(&name, query.tag.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}
