//! Volumes. Their contents have an API of their own, which admits the token of a volume.

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{IdError, Name, VolumeId, Writers};
use dorm_service::{Code, ServiceError, TopMode, VOLUME_BYTES, VolumeProblem};
use dorm_store::VolumeStatus;
use serde::{Deserialize, Serialize};

use super::{Call, Permission, show, unknown};
use crate::door::E2b;
use crate::error::Refusal;
use crate::{text, tokens};

pub(super) mod content;
mod upload;
mod wire;

/// A volume to create.
#[derive(Deserialize)]
struct NewVolume {
    name: String,
}

/// A volume in a list.
#[derive(Serialize)]
struct ListedVolume {
    #[serde(rename = "volumeID")]
    volume_id: String,
    name: String,
}

/// A volume, with the token for its contents.
#[derive(Serialize)]
struct Volume {
    #[serde(flatten)]
    listed: ListedVolume,
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
}

/// Answers a request for volumes; `rest` is the path below them.
pub(super) async fn answer(door: &E2b, rest: &[&str], call: Call) -> Result<Response, Refusal> {
    match (call.request.method(), rest) {
        (&Method::GET, []) => list(call).await,
        (&Method::POST, []) => create(door, call).await,
        (&Method::GET, [id]) => describe(door, id, call).await,
        (&Method::DELETE, [id]) => remove(id, call).await,
        _ => Err(unknown(&call)),
    }
}

async fn list(call: Call) -> Result<Response, Refusal> {
    let volumes = call.service.volumes().await?.into_iter().map(|view| view.volume);
    let ready = volumes.filter(|volume| volume.status == VolumeStatus::Ready);
    let listed = ready.map(|volume| listed(&volume.id, &volume.name));
    Ok(Json(listed.collect::<Vec<_>>()).into_response())
}

async fn create(door: &E2b, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let domain = show::domain(door, request.headers());
    let NewVolume { name } = text::json(request).await?;
    let name: Name = name.parse().map_err(|error: IdError| Refusal::invalid(error.to_string()))?;
    // Any sandbox can mount it and any user in it can write, as clients expect.
    let made = service.create_volume_with(name, VOLUME_BYTES, Writers::Many, TopMode::Everyone).await;
    let made = made.map_err(|error| match &error {
        // The clients know 400 for it.
        ServiceError::Volume(problem) if matches!(**problem, VolumeProblem::NameTaken(_)) => {
            Refusal::invalid(error.message())
        }
        _ => error.into(),
    })?;
    let token = tokens::volume(&service, &made.volume.id);
    let volume = Volume { listed: listed(&made.volume.id, &made.volume.name), token, domain };
    Ok((StatusCode::CREATED, Json(volume)).into_response())
}

async fn describe(door: &E2b, text: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, permission, request } = call;
    let id = volume_id(text)?;
    let view = service.volume_with_id(&id).await.map_err(|error| refused(text, error))?;
    let token = match permission {
        Permission::Change => tokens::volume(&service, &id),
        Permission::Read => tokens::volume_for_reading(&service, &id),
    };
    let domain = show::domain(door, request.headers());
    let volume = Volume { listed: listed(&id, &view.volume.name), token, domain };
    Ok(Json(volume).into_response())
}

async fn remove(text: &str, call: Call) -> Result<Response, Refusal> {
    let id = volume_id(text)?;
    call.service.remove_volume_with_id(&id).await.map_err(|error| refused(text, error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn listed(id: &VolumeId, name: &Name) -> ListedVolume {
    ListedVolume { volume_id: id.to_string(), name: name.to_string() }
}

fn volume_id(text: &str) -> Result<VolumeId, Refusal> {
    text.parse().map_err(|_| absent(text))
}

fn absent(text: &str) -> Refusal {
    Refusal::not_found(format!("Volume '{text}' not found"))
}

/// The refusal for an error that concerns a volume.
fn refused(text: &str, error: ServiceError) -> Refusal {
    match error.code() {
        Code::NotFound => absent(text),
        _ => error.into(),
    }
}
