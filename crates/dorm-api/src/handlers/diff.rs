//! Comparing files.

use axum::extract::State;
use dorm_lifecycle::SnapshotId;
use dorm_pool::{Difference, Differing};
use dorm_service::{Moment, ServiceError};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::Query;
use crate::routes::Api;
use crate::wire;

/// What is compared.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffQuery {
    /// The first moment: the id of a snapshot, or of a sandbox for its files as they are now, or the name of one that
    /// lives.
    from: String,
    /// The second moment.
    to: String,
}

/// What differs between the files of two moments, which must stand on one image. A running sandbox stands still for a
/// moment; a suspended one does not wake.
#[utoipa::path(get, path = "/v1/diff", operation_id = "diffFiles", tag = "snapshots", params(DiffQuery), responses(
    (status = 200, body = wire::Diff),
    (status = "default", body = wire::ErrorAnswer, description = "an error"),
))]
pub(crate) async fn diff(
    State(api): State<Api>,
    Query(asked): Query<DiffQuery>,
) -> Result<axum::Json<wire::Diff>, ApiError> {
    let from = moment(&api, &asked.from).await?;
    let to = moment(&api, &asked.to).await?;
    let changes = api.service.diff(&from, &to).await?.into_iter().map(Into::into).collect();
    Ok(axum::Json(wire::Diff { changes }))
}

async fn moment(api: &Api, reference: &str) -> Result<Moment, ApiError> {
    if let Ok(id) = reference.parse::<SnapshotId>() {
        match api.service.snapshot(&id).await {
            Ok(_) => return Ok(Moment::Snapshot(id)),
            Err(ServiceError::NoSnapshot(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match api.service.find(reference).await {
        Ok(id) => Ok(Moment::Sandbox(id)),
        Err(ServiceError::NoSandbox(_)) => {
            let message = format!("there is no snapshot and no sandbox '{reference}'");
            Err(ApiError::not_found(message, "list the sandboxes and the snapshots that are there"))
        }
        Err(error) => Err(error.into()),
    }
}

impl From<Differing> for wire::DiffEntry {
    fn from(differing: Differing) -> Self {
        let Differing { path, difference, before, after } = differing;
        let absolute = [b"/", &path[..]].concat();
        Self {
            path: wire::Text::from_bytes(&absolute),
            change: match difference {
                Difference::Added => wire::DiffChange::Added,
                Difference::Removed => wire::DiffChange::Removed,
                Difference::Modified => wire::DiffChange::Modified,
            },
            before_bytes: before,
            after_bytes: after,
        }
    }
}
