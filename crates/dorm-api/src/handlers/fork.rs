//! Forks.

use axum::http::StatusCode;
use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_service::{ForkChildSpec, ForkSpec};

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Sandbox};

/// Fork a sandbox
///
/// Creates several sandboxes that continue from the current state of this one, each with its own
/// identity. A running source continues to run, and a suspended source stays suspended.
///
/// If a child cannot be created, `on_partial_failure` says whether the others are kept. If they
/// are, the response has a sandbox or an error for each child. With `roll_back`, the call either
/// creates all children, or creates none and returns an error.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fork", operation_id = "forkSandbox", tag = "sandboxes",
    request_body = wire::ForkRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 201, description = "The children, in the order of the request.", body = wire::Forked),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn fork(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::ForkRequest>,
) -> Result<(StatusCode, axum::Json<wire::Forked>), ApiError> {
    let on_partial_failure = asked.on_partial_failure.convert();
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
    let made = service.fork(&id, ForkSpec { children, on_partial_failure, volumes: asked.volumes.convert() }).await?;
    let children = made.into_iter().map(|made| match made {
        Ok(view) => wire::ForkedChild { sandbox: Some(view.convert()), error: None },
        Err(error) => wire::ForkedChild { sandbox: None, error: Some(ApiError::from(error).into_body()) },
    });
    Ok((StatusCode::CREATED, axum::Json(wire::Forked { children: children.collect() })))
}

/// A sandbox that continues from another.
pub(super) fn child(asked: wire::ForkChild) -> Result<ForkChildSpec, ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?;
    Ok(ForkChildSpec {
        name,
        timeouts: convert::timeouts(asked.timeout_secs, asked.idle_timeout_secs, asked.max_run_secs)?,
        on_timeout: asked.on_timeout.map(Convert::convert),
        variables: asked.env,
        labels: asked.labels,
        secrets: convert::secrets(asked.secrets),
    })
}
