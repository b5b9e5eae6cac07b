//! Sandbox pools.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use dorm_api_types as wire;
use dorm_lifecycle::{Claim, IdError};
use dorm_service::{AnswerAt, CreateFrom, PoolSpec};

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json, Query, parameter};
use crate::page::PageQuery;
use crate::state::Api;
use crate::tagged::Tagged;

/// The pool of `{pool}`, by name or id.
pub(crate) struct Pool(String);

impl FromRequestParts<Api> for Pool {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        parameter(parts, api, "pool").await.map(Self)
    }
}

/// Create a pool of sandboxes
///
/// The daemon makes sandboxes in advance and suspends them, so that a claim is a wake. It keeps
/// `ready` of them waiting, also after a restart.
#[utoipa::path(post, path = "/v1/pools", operation_id = "createPool", tag = "pools", request_body = wire::CreatePool,
    responses(
        (status = 201, description = "The pool. Its sandboxes are made from now on.", body = wire::Pool),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreatePool>,
) -> Result<(StatusCode, axum::Json<wire::Pool>), ApiError> {
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
    let spec = PoolSpec {
        name: asked.name.parse().map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?,
        from,
        program: asked.start.map(Convert::convert),
        resources,
        egress: asked.egress.map(Convert::convert),
        variables: asked.env,
        port_access: asked.port_access.map(Convert::convert),
        labels: asked.labels,
        ready: asked.ready,
        most: asked.most,
    };
    Ok((StatusCode::CREATED, axum::Json(service.create_pool(spec).await?.convert())))
}

/// List pools
///
/// Ordered by name.
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "pools", params(PageQuery),
    responses(
        (status = 200, description = "One page of pools.", body = wire::PoolList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<wire::PoolList>, ApiError> {
    let (pools, next) = query.of(service.pools().await?, |view| view.pool.name.clone())?;
    Ok(axum::Json(wire::PoolList { pools: pools.into_iter().map(Convert::convert).collect(), next }))
}

/// Get a pool
#[utoipa::path(get, path = "/v1/pools/{pool}", operation_id = "getPool", tag = "pools",
    params(("pool" = String, Path, description = "Name or ID of the pool.")),
    responses(
        (status = 200, description = "The pool.", body = wire::Pool),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(
    ForRequest(service): ForRequest,
    Pool(name): Pool,
) -> Result<axum::Json<wire::Pool>, ApiError> {
    Ok(axum::Json(service.pool(&name).await?.convert()))
}

/// Change the size of a pool
///
/// Surplus sandboxes that wait are terminated. Claimed ones stay.
#[utoipa::path(put, path = "/v1/pools/{pool}/size", operation_id = "resizePool", tag = "pools",
    request_body = wire::ResizePool,
    params(("pool" = String, Path, description = "Name or ID of the pool.")),
    responses(
        (status = 200, description = "The pool with its new numbers.", body = wire::Pool),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn resize(
    ForRequest(service): ForRequest,
    Pool(name): Pool,
    Json(asked): Json<wire::ResizePool>,
) -> Result<axum::Json<wire::Pool>, ApiError> {
    Ok(axum::Json(service.resize_pool(&name, asked.ready, asked.most).await?.convert()))
}

/// Claim a sandbox of a pool
///
/// A sandbox that waits is resumed with the settings of the request, and is a sandbox like any
/// other from then on. The daemon makes another one for the pool.
#[utoipa::path(post, path = "/v1/pools/{pool}/claim", operation_id = "claimSandbox", tag = "pools",
    request_body = Option<wire::ClaimRequest>,
    params(("pool" = String, Path, description = "Name or ID of the pool.")),
    responses(
        (status = 201, description = "The running sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn claim(
    ForRequest(service): ForRequest,
    Pool(pool): Pool,
    Json(asked): Json<wire::ClaimRequest>,
) -> Result<Tagged, ApiError> {
    let name = asked.name.map(|name| name.parse()).transpose();
    let claim = Claim {
        name: name.map_err(|error: IdError| ApiError::invalid(error.to_string(), ""))?,
        variables: asked.env,
        labels: asked.labels,
        timeouts: convert::timeouts(asked.timeout_secs, asked.idle_timeout_secs, asked.max_run_secs)?,
        on_timeout: asked.on_timeout.map(Convert::convert),
        wake: asked.wake.map(Convert::convert).unwrap_or_default(),
        port_access: asked.port_access.map(Convert::convert),
    };
    let claimed = service.claim(&pool, claim, convert::wait(asked.max_wait_secs)?).await?;
    Ok(Tagged::created(claimed, AnswerAt::End))
}

/// Remove a pool
///
/// The sandboxes that wait are terminated. Claimed ones stay.
#[utoipa::path(delete, path = "/v1/pools/{pool}", operation_id = "deletePool", tag = "pools",
    params(("pool" = String, Path, description = "Name or ID of the pool.")),
    responses(
        (status = 204, description = "The pool is removed."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn delete(ForRequest(service): ForRequest, Pool(name): Pool) -> Result<StatusCode, ApiError> {
    service.remove_pool(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
