//! Creates sandboxes.

use dorm_api_types as wire;
use dorm_lifecycle::IdError;
use dorm_ports::{Logins, RemoteSpec, Transport};
use dorm_service::{AnswerAt, CreateFrom, NamedSource, PullPolicy, Service};
use dorm_storage::Image;

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
    let named = (asked.image.as_deref(), asked.snapshot.as_deref(), asked.template.as_deref());
    let (from, image) = source_of(&service, named, asked.pull).await?;
    if let Some(image) = image.filter(|image| asked.start == Some(true) && image.config.start().is_empty()) {
        let image = asked.image.unwrap_or_else(|| image.digest.to_string());
        let message = format!("the image '{image}' has no command to start");
        return Err(ApiError::invalid(message, "create the sandbox without `start` and run a command in it"));
    }
    let base = service.resources_of(&from).await?;
    let asked = convert::create(asked, from, base)?;
    let view = service.in_manner(manner).create(asked).await?;
    Ok(Tagged::created(view, manner.answer))
}

/// Returns what a new sandbox starts from: exactly one of an image, a snapshot and a template. An
/// image comes with its record.
pub(super) async fn source_of(
    service: &Service,
    (image, snapshot, template): (Option<&str>, Option<&str>, Option<&str>),
    pull: Option<wire::Pull>,
) -> Result<(CreateFrom, Option<Image>), ApiError> {
    match (image, snapshot, template) {
        (Some(image), None, None) => {
            let pull = pull.map_or(PullPolicy::Missing, Convert::convert);
            let wanted = RemoteSpec {
                reference: image.to_owned(),
                architecture: None,
                transport: Transport::Secure,
                logins: Logins::Daemon,
                login: None,
            };
            Ok(match service.find_source(wanted, pull, |_| {}).await? {
                NamedSource::Image(found) => (CreateFrom::Image(found.digest.to_string()), Some(*found)),
                NamedSource::Snapshot(snapshot) => (CreateFrom::Snapshot(snapshot.id), None),
            })
        }
        (None, None, Some(template)) => Ok((CreateFrom::Template(template.parse()?), None)),
        (None, Some(id), None) => {
            let id = id.parse().map_err(|error: IdError| ApiError::invalid(format!("snapshot: {error}"), ""))?;
            Ok((CreateFrom::Snapshot(id), None))
        }
        _ => {
            let message = "give exactly one of image, snapshot and template";
            Err(ApiError::invalid(message, "list images with GET /v1/images, snapshots with GET /v1/snapshots"))
        }
    }
}
