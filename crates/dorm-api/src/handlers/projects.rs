//! Projects.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Project, Query};
use crate::page::PageQuery;

/// Create a project
///
/// Nothing of a project is visible to the keys of another one. Creating a project that exists with
/// the same limits succeeds.
#[utoipa::path(post, path = "/v1/projects", operation_id = "createProject", tag = "projects",
    request_body = wire::CreateProject,
    responses(
        (status = 201, description = "The project.", body = wire::Project),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateProject>,
) -> Result<(StatusCode, axum::Json<wire::Project>), ApiError> {
    let id = asked.name.parse().map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    let project = service.create_project(id, asked.budgets.convert()).await?;
    Ok((StatusCode::CREATED, axum::Json(project.convert())))
}

/// List projects
///
/// Ordered by name.
#[utoipa::path(get, path = "/v1/projects", operation_id = "listProjects", tag = "projects", params(PageQuery),
    responses(
        (status = 200, description = "One page of projects.", body = wire::ProjectList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::ProjectList>, ApiError> {
    let (projects, next) = query.of(service.projects().await?, |view| view.project.id.clone())?;
    Ok(axum::Json(wire::ProjectList { projects: projects.into_iter().map(Convert::convert).collect(), next }))
}

/// Get a project
#[utoipa::path(get, path = "/v1/projects/{project}", operation_id = "getProject", tag = "projects",
    params(("project" = String, Path, description = "Name of the project.")),
    responses(
        (status = 200, description = "The project.", body = wire::Project),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Project(id): Project,
) -> Result<axum::Json<wire::Project>, ApiError> {
    Ok(axum::Json(service.describe_project(&id).await?.convert()))
}

/// Replace the limits of a project
///
/// Everything that the project has stays, even if it is more than the new limits.
#[utoipa::path(put, path = "/v1/projects/{project}/budgets", operation_id = "setProjectBudgets", tag = "projects",
    request_body = wire::ProjectBudgets,
    params(("project" = String, Path, description = "Name of the project.")),
    responses(
        (status = 200, description = "The project with its new limits.", body = wire::Project),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn budgets(
    ForRequest(service): ForRequest,
    Project(id): Project,
    Json(asked): Json<wire::ProjectBudgets>,
) -> Result<axum::Json<wire::Project>, ApiError> {
    Ok(axum::Json(service.set_project_budgets(&id, asked.convert()).await?.convert()))
}

/// Remove a project
///
/// Its keys and webhooks are removed with it. Fails while the project has sandboxes that are not
/// terminated, snapshots or volumes. Its name is not used again. Removing a removed project
/// succeeds.
#[utoipa::path(delete, path = "/v1/projects/{project}", operation_id = "deleteProject", tag = "projects",
    params(("project" = String, Path, description = "Name of the project.")),
    responses(
        (status = 204, description = "The project is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, Project(id): Project) -> Result<StatusCode, ApiError> {
    service.remove_project(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
