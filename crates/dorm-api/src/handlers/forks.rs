//! Forks.

use axum::extract::State;
use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::{ForkChildSpec, ForkSpec};
use dorm_store::Together;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{Json, Sandbox};
use crate::state::Api;

/// Fork a sandbox
///
/// Creates several sandboxes that continue from the current state of this one, each with its own identity. A running
/// source continues to run, and a suspended source stays suspended.
///
/// With `all_or_none`, the call either creates all children, or creates none and returns an error. Otherwise the
/// response has a sandbox or an error for each child.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fork", operation_id = "forkSandbox", tag = "sandboxes",
    request_body = wire::ForkRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one")),
    responses(
        (status = 201, description = "The children, in the order of the request.", body = wire::Forked),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn fork(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::ForkRequest>,
) -> Result<(StatusCode, axum::Json<wire::Forked>), ApiError> {
    let together = if asked.all_or_none { Together::AllOrNone } else { Together::Each };
    let children = match (asked.count, asked.children) {
        (Some(count), children) if children.is_empty() => {
            // The service refuses a count that is too large, since it has the limit.
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(dorm_service::FORK_MAX + 1);
            vec![ForkChildSpec::default(); count]
        }
        (None, children) => children.into_iter().map(child).collect::<Result<_, _>>()?,
        (Some(_), _) => {
            let message = "give either count or children, not both";
            return Err(ApiError::invalid(message, "leave one out"));
        }
    };
    let made = api.service.fork(&id, ForkSpec { children, together, volumes: asked.volumes.convert() }).await?;
    let children = made.into_iter().map(|made| match made {
        Ok(view) => wire::ForkedChild { sandbox: Some(view.convert()), error: None },
        Err(error) => wire::ForkedChild { sandbox: None, error: Some(ApiError::from(error).into_body()) },
    });
    Ok((StatusCode::CREATED, axum::Json(wire::Forked { children: children.collect() })))
}

fn child(asked: wire::ForkChild) -> Result<ForkChildSpec, ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    Ok(ForkChildSpec { name, variables: asked.env, labels: asked.labels, secrets: convert::secrets(asked.secrets) })
}
