//! Comparison of files.

use dorm_api_types as wire;
use dorm_lifecycle::SnapshotId;
use dorm_service::{Moment, Service, ServiceError};
use dorm_storage::{Difference, Differing};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{Convert, Of};
use crate::error::ApiError;
use crate::extract::{ForRequest, Query};

/// Parameters of a comparison.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffQuery {
    /// One side: ID of a snapshot, or ID or name of a sandbox for its current files.
    from: String,
    /// The other side, like `from`.
    to: String,
    /// The side that the comparison starts from.
    #[serde(default)]
    order: wire::DiffOrder,
}

/// Compare the files of two snapshots or sandboxes
///
/// The comparison goes from the older side to the newer one, unless `order` is `given`. The answer
/// says which is which.
///
/// Both must be based on the same image. A running sandbox is paused briefly; a suspended sandbox
/// stays suspended.
#[utoipa::path(get, path = "/v1/diff", operation_id = "diffFiles", tag = "snapshots", params(DiffQuery), responses(
    (status = 200, description = "The paths that differ.", body = wire::Diff),
    (status = "default", response = ApiError),
))]
pub(crate) async fn diff(
    ForRequest(service): ForRequest,
    Query(asked): Query<DiffQuery>,
) -> Result<axum::Json<wire::Diff>, ApiError> {
    let given = (moment(&service, &asked.from).await?, moment(&service, &asked.to).await?);
    let (from, to) = match asked.order {
        wire::DiffOrder::Time => service.older_first(given.0, given.1).await?,
        wire::DiffOrder::Given => given,
    };
    let changes = service.diff(&from, &to).await?.into_iter().map(Convert::convert).collect();
    Ok(axum::Json(wire::Diff { from: id(&from), to: id(&to), changes }))
}

fn id(moment: &Moment) -> String {
    match moment {
        Moment::Snapshot(id) => id.to_string(),
        Moment::Sandbox(id) => id.to_string(),
    }
}

async fn moment(service: &Service, reference: &str) -> Result<Moment, ApiError> {
    if let Ok(id) = reference.parse::<SnapshotId>() {
        match service.snapshot(&id).await {
            Ok(_) => return Ok(Moment::Snapshot(id)),
            Err(ServiceError::NoSnapshot(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match service.find(reference).await {
        Ok(id) => Ok(Moment::Sandbox(id)),
        Err(ServiceError::NoSandbox(_)) => {
            let message = format!("there is no snapshot and no sandbox '{reference}'");
            Err(ApiError::not_found(message, "list sandboxes with GET /v1/sandboxes, snapshots with GET /v1/snapshots"))
        }
        Err(error) => Err(error.into()),
    }
}

impl Of<Differing> for wire::DiffEntry {
    fn of(differing: Differing) -> Self {
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
