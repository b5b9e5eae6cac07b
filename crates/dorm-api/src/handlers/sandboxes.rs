//! Lists and describes sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_store::SandboxFilter;
use utoipa::IntoParams;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, Sandbox};
use crate::tagged::Tagged;

/// The default size of a page.
const PAGE: usize = 100;
/// The largest size of a page.
const PAGE_MAX: usize = 1000;

/// Parameters of the list of sandboxes.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the query, which is parsed pair by pair because `label` may be repeated")]
pub(crate) struct ListQuery {
    /// Only sandboxes in these states, separated by commas. Default: every state, including
    /// `terminated`.
    state: Option<String>,
    /// Only sandboxes with this name.
    name: Option<String>,
    /// Only sandboxes with this label, `KEY=VALUE`. Repeat to require several labels.
    label: Option<Vec<String>>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List sandboxes
///
/// Ordered by id. Terminated sandboxes are included unless `state` excludes them.
#[utoipa::path(get, path = "/v1/sandboxes", operation_id = "listSandboxes", tag = "sandboxes", params(ListQuery),
    responses(
        (status = 200, description = "One page of sandboxes.", body = wire::SandboxPage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<axum::Json<wire::SandboxPage>, ApiError> {
    let mut filter = filter(query)?;
    filter.project = Some(service.project().clone());
    let wanted = filter.limit;
    filter.limit = wanted + 1;
    let mut views = service.list(&filter).await?;
    let more = views.len() > wanted;
    views.truncate(wanted);
    let next = views.last().filter(|_| more).map(|last| last.sandbox.id.to_string());
    Ok(axum::Json(wire::SandboxPage { sandboxes: views.into_iter().map(Convert::convert).collect(), next }))
}

fn filter(query: Vec<(String, String)>) -> Result<SandboxFilter, ApiError> {
    let mut filter = SandboxFilter { limit: PAGE, ..SandboxFilter::default() };
    let id_error = |error: IdError| ApiError::invalid(error.to_string(), "");
    for (key, value) in query {
        match key.as_str() {
            "state" => {
                for word in value.split(',') {
                    let state = convert::state_name(word).ok_or_else(|| {
                        let words: Vec<_> = dorm_lifecycle::StateName::ALL.iter().map(|state| state.as_str()).collect();
                        ApiError::invalid(format!("'{word}' is not a state: states are {}", words.join(", ")), "")
                    })?;
                    filter.states.push(state);
                }
            }
            "name" => filter.name = Some(value.parse().map_err(id_error)?),
            "after" => filter.after = Some(value.parse().map_err(id_error)?),
            "label" => {
                let (key, value) = value.split_once('=').ok_or_else(|| {
                    ApiError::invalid(format!("label '{value}' has no '='"), "write labels as KEY=VALUE")
                })?;
                filter.labels.push((key.to_owned(), value.to_owned()));
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                filter.limit = limit.ok_or_else(|| {
                    ApiError::invalid(format!("limit is '{value}': it must be between 1 and {PAGE_MAX}"), "")
                })?;
            }
            other => {
                let message =
                    format!("unknown query parameter '{other}': known are state, name, label, after and limit");
                return Err(ApiError::invalid(message, ""));
            }
        }
    }
    Ok(filter)
}

/// Get a sandbox
///
/// Works in every state, including `terminated`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", operation_id = "getSandbox", tag = "sandboxes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The sandbox.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn describe(ForRequest(service): ForRequest, Sandbox(id): Sandbox) -> Result<Tagged, ApiError> {
    Ok(service.describe(&id).await?.into())
}
