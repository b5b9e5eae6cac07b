//! Creates sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_service::{AnswerAt, CreateFrom, NamedSource, PullPolicy};

use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Json};
use crate::tagged::Tagged;

/// Create a sandbox
///
/// Starts from an image, a snapshot or a template. Responds when the sandbox is running.
#[utoipa::path(post, path = "/v1/sandboxes", operation_id = "createSandbox", tag = "sandboxes",
    request_body = wire::CreateSandbox,
    responses(
        (status = 201, description = "The running sandbox.", body = wire::Sandbox),
        (status = 202, description = "The sandbox, which is starting.", body = wire::Sandbox),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn create(
    ForRequest(service): ForRequest,
    Json(asked): Json<wire::CreateSandbox>,
) -> Result<Tagged, ApiError> {
    let manner = convert::manner(asked.wait, None);
    if let Some(created) = service.created_by_first_request().await? {
        return Ok(Tagged::created(created, AnswerAt::End));
    }
    let from = match (&asked.image, &asked.snapshot, &asked.template) {
        (Some(image), None, None) => {
            let pull = asked.pull.map_or(PullPolicy::Missing, Convert::convert);
            let wanted = RemoteSpec {
                reference: image.clone(),
                architecture: None,
                transport: Transport::Secure,
                logins: Logins::Daemon,
            };
            match service.find_source(wanted, pull, |_| {}).await? {
                NamedSource::Image(found) if asked.start == Some(true) && found.config.start().is_empty() => {
                    let message = format!("the image '{image}' has no command to start");
                    let hint = "create the sandbox without `start` and run a command in it";
                    return Err(ApiError::invalid(message, hint));
                }
                NamedSource::Image(found) => CreateFrom::Image(found.digest.to_string()),
                NamedSource::Snapshot(snapshot) => CreateFrom::Snapshot(snapshot.id),
            }
        }
        (None, None, Some(template)) => CreateFrom::Template(template.parse()?),
        (None, Some(id), None) => {
            let id = id.parse().map_err(|error: IdError| ApiError::invalid(format!("snapshot: {error}"), ""))?;
            CreateFrom::Snapshot(id)
        }
        _ => {
            let message = "give exactly one of image, snapshot and template";
            return Err(ApiError::invalid(
                message,
                "list images with GET /v1/images, snapshots with GET /v1/snapshots",
            ));
        }
    };
    let base = service.resources_of(&from).await?;
    let asked = convert::create(asked, from, base)?;
    let view = service.in_manner(manner).create(asked).await?;
    Ok(Tagged::created(view, manner.answer))
}
