//! Lists and describes sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::{IdError, SandboxId, Timestamp};
use dorm_service::SandboxPage;
use dorm_store::{Direction, SandboxFilter, SandboxOrder};
use utoipa::IntoParams;

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, Sandbox};
use crate::page::Dated;
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
    /// The order of the list: `id`, `created`, or `started`, when the sandbox last began to run.
    /// Default `id`.
    sort: Option<String>,
    /// `asc` for the earliest first, which is the default, or `desc`. Not for the order of ids.
    order: Option<String>,
    /// Cursor: `next` of the previous page, of a request with the same other parameters.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

/// List sandboxes
///
/// Ordered by id unless `sort` says otherwise. A list by `created` or `started` continues correctly
/// while sandboxes are created: none is left out, and none is listed twice unless it started again
/// meanwhile. Terminated sandboxes are included unless `state` excludes them.
#[utoipa::path(get, path = "/v1/sandboxes", operation_id = "listSandboxes", tag = "sandboxes", params(ListQuery),
    responses(
        (status = 200, description = "One page of sandboxes.", body = wire::SandboxPage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<axum::Json<wire::SandboxPage>, ApiError> {
    let filter = filter(query)?;
    let SandboxPage { sandboxes, next } = service.page(&filter).await?;
    let next = next.map(|(moment, id)| cursor(&filter, moment, &id));
    Ok(axum::Json(wire::SandboxPage { sandboxes: sandboxes.into_iter().map(Convert::convert).collect(), next }))
}

/// The cursor after a sandbox of this list. In an order of moments it names the list it belongs to.
fn cursor(filter: &SandboxFilter, moment: Timestamp, id: &SandboxId) -> String {
    match list_name(filter) {
        None => id.to_string(),
        Some(list) => format!("{list}.{}", Dated(moment, id.clone())),
    }
}

/// The name of a list in an order of moments, which differs for other parameters.
fn list_name(filter: &SandboxFilter) -> Option<String> {
    let (by, direction) = match filter.order {
        SandboxOrder::Id => return None,
        SandboxOrder::Created(direction) => ("created", direction),
        SandboxOrder::Started(direction) => ("started", direction),
    };
    let order = match direction {
        Direction::Ascending => "asc",
        Direction::Descending => "desc",
    };
    let SandboxFilter { states, name, labels, .. } = filter;
    let parameters = format!("{states:?} {name:?} {labels:?}");
    // FNV-1a: the name only has to tell lists apart.
    let hash = parameters
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Some(format!("{by}.{order}.{hash:016x}"))
}

/// Continues a list after a cursor of it.
fn continue_after(filter: &mut SandboxFilter, after: &str) -> Result<(), ApiError> {
    let Some(list) = list_name(filter) else {
        let id = after.parse().map_err(|_| {
            let message = format!("after is '{after}', which is not a cursor of this list, in the order of ids");
            ApiError::invalid(message, "use `next` of the previous page, with its other parameters")
        })?;
        filter.after = Some(id);
        return Ok(());
    };
    let Some((of, Dated(moment, id))) =
        after.rsplit_once('.').and_then(|(of, dated)| Some((of, dated.parse::<Dated<SandboxId>>().ok()?)))
    else {
        return Err(ApiError::invalid(
            format!("after is '{after}', which is not a cursor of a list in this order"),
            "use `next` of the previous page, with its other parameters",
        ));
    };
    if of != list {
        return Err(ApiError::invalid(
            format!("after is '{after}', a cursor of a list with other parameters"),
            "use the `sort`, `order`, `state`, `name` and `label` of the previous page",
        ));
    }
    (filter.after, filter.after_moment) = (Some(id), moment);
    Ok(())
}

/// The order of the list.
fn order(sort: Option<&str>, order: Option<&str>) -> Result<SandboxOrder, ApiError> {
    let direction = match order {
        None | Some("asc") => Direction::Ascending,
        Some("desc") => Direction::Descending,
        Some(other) => return Err(ApiError::invalid(format!("order is '{other}': it must be asc or desc"), "")),
    };
    match sort {
        None | Some("id") if order == Some("desc") => {
            Err(ApiError::invalid("order is desc, but ids have no such order", "set sort to created or started"))
        }
        None | Some("id") => Ok(SandboxOrder::Id),
        Some("created") => Ok(SandboxOrder::Created(direction)),
        Some("started") => Ok(SandboxOrder::Started(direction)),
        Some(other) => Err(ApiError::invalid(format!("sort is '{other}': it must be id, created or started"), "")),
    }
}

fn filter(query: Vec<(String, String)>) -> Result<SandboxFilter, ApiError> {
    let mut filter = SandboxFilter { limit: PAGE, ..SandboxFilter::default() };
    let (mut sort, mut direction, mut after) = (None, None, None);
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
            "sort" => sort = Some(value),
            "order" => direction = Some(value),
            "after" => after = Some(value),
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
                let message = format!(
                    "unknown query parameter '{other}': known are state, name, label, sort, order, after and limit"
                );
                return Err(ApiError::invalid(message, ""));
            }
        }
    }
    filter.order = order(sort.as_deref(), direction.as_deref())?;
    if let Some(after) = after {
        continue_after(&mut filter, &after)?;
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
