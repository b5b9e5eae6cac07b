//! Creating a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_http::{bodies, only};
use dorm_lifecycle::{Annotations, OnTimeout, RequestId, Timeouts, Wake};
use dorm_service::{AttachmentSpec, CreateSpec, Service, ServiceError};
use sha2::{Digest as _, Sha256};

use super::wire::{NewSandbox, VolumeMount};
use super::{Call, Version, network, show, templates};
use crate::door::{DOOR, E2b};
use crate::error::Refusal;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// The shortest time limit of a sandbox that a request has woken.
const AFTER_WAKE_MIN: Duration = Duration::from_secs(300);
/// The longest body.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How long a creation waits for room, in turn with others.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest time limit: 100 years.
const TIMEOUT_MAX: i64 = 100 * 366 * 86_400;

/// Answers a request to create a sandbox.
pub(super) async fn create(door: &E2b, version: Version, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let domain = show::domain(door, request.headers());
    let key = only(request.headers(), &IDEMPOTENCY_KEY)?.map(str::to_owned);
    let body = bodies::collect(request.into_body(), BODY_BYTES_MAX).await?;
    let asked: NewSandbox =
        serde_json::from_slice(&body).map_err(|error| Refusal::invalid(format!("invalid request body: {error}")))?;
    let service = match key {
        None => service,
        Some(key) => keyed(&service, &key, version, &body).await?,
    };
    if let Some(created) = service.created_by_first_request().await? {
        return Ok((StatusCode::CREATED, Json(show::sandbox(&service, &created, domain))).into_response());
    }
    let spec = spec(&service, version, asked).await?;
    let view = service.create(spec).await.map_err(refused)?;
    Ok((StatusCode::CREATED, Json(show::sandbox(&service, &view, domain))).into_response())
}

/// The service for a request that may be sent again with the same key.
async fn keyed(service: &Service, key: &str, version: Version, body: &[u8]) -> Result<Service, Refusal> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Refusal::invalid(format!("Idempotency-Key must have 1 to {KEY_BYTES_MAX} characters")));
    }
    let hash = |parts: [&[u8]; 3]| -> [u8; 32] {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        hasher.finalize().into()
    };
    let [id @ .., _, _, _, _, _, _, _, _, _, _, _, _] =
        hash([DOOR.as_str().as_bytes(), service.project().as_str().as_bytes(), key.as_bytes()]);
    let fingerprint = hash([b"create", version.as_str().as_bytes(), body]);
    service.for_request(&RequestId::from_random(id), fingerprint).await.map_err(|error| match error {
        ServiceError::KeyReused => {
            let message = "this Idempotency-Key was used for another request: use a new key";
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message).with_code("idempotency_request_mismatch")
        }
        error => error.into(),
    })
}

/// A creation that failed. The client must not repeat one that has had an effect.
fn refused(error: ServiceError) -> Refusal {
    match error {
        ServiceError::OperationFailed { .. } => Refusal::from(error).with_code("sandbox_create_failed").not_again(),
        error => error.into(),
    }
}

/// The properties of the sandbox that a request asks for.
async fn spec(service: &Service, version: Version, asked: NewSandbox) -> Result<CreateSpec, Refusal> {
    if asked.iam.as_ref().is_some_and(|iam| !iam.is_null()) {
        return Err(Refusal::invalid("iam is not supported here; see docs/e2b.md"));
    }
    let (on_timeout, wake) = at_timeout(&asked)?;
    let total = timeout(asked.timeout.unwrap_or(version.timeout_by_default()))?;
    let network = asked.network.clone().unwrap_or_default();
    network::refuse_unsupported(&network)?;
    let names_egress = asked.allow_internet_access == Some(false)
        || network.allow_out.is_some()
        || network.deny_out.is_some()
        || network.rules.is_some();
    let egress = match names_egress {
        true => Some(network::egress(&network, asked.allow_internet_access, service.project())?),
        false => None,
    };
    let port_host = network::host(&network)?;
    let is_secure = version == Version::Second || asked.secure != Some(false);
    let source = templates::source_of(service, &asked.template_id).await?;
    let annotations = show::annotations(&source.template_id, source.alias.as_deref(), is_secure);
    Ok(CreateSpec {
        egress,
        variables: asked.env_vars.unwrap_or_default(),
        on_timeout: Some(on_timeout),
        suspendable: Some(true),
        wake,
        port_access: network::access(&network),
        port_host: port_host.map(Some),
        timeouts: Timeouts { total: Some(total), after_wake: Some(total.max(AFTER_WAKE_MIN)), ..Timeouts::default() },
        attachments: asked.volume_mounts.unwrap_or_default().into_iter().map(attachment).collect::<Result<_, _>>()?,
        labels: asked.metadata.unwrap_or_default(),
        annotations: Annotations(BTreeMap::from([(DOOR.as_str().to_owned(), annotations)])),
        max_wait: PATIENCE,
        ..CreateSpec::new(source.from)
    })
}

/// The action at the deadline, and the calls that wake the sandbox afterwards.
fn at_timeout(asked: &NewSandbox) -> Result<(OnTimeout, Wake), Refusal> {
    let pauses = asked.auto_pause.unwrap_or(false);
    let keeps_memory = asked.auto_pause_memory.unwrap_or(true);
    let wakes = asked.auto_resume.as_ref().is_some_and(|resume| resume.enabled);
    if !keeps_memory && !pauses {
        return Err(Refusal::invalid("autoPauseMemory: false needs autoPause: true"));
    }
    if !keeps_memory && wakes {
        return Err(Refusal::invalid("autoPauseMemory: false cannot be combined with autoResume"));
    }
    let on_timeout = match (pauses, keeps_memory) {
        (false, _) => OnTimeout::Terminate,
        (true, true) => OnTimeout::Suspend,
        (true, false) => OnTimeout::SuspendFiles,
    };
    Ok((on_timeout, if wakes { Wake::Any } else { Wake::Never }))
}

/// A time limit, which must be positive.
pub(super) fn timeout(seconds: i64) -> Result<Duration, Refusal> {
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) if seconds <= TIMEOUT_MAX.unsigned_abs() => Ok(Duration::from_secs(seconds)),
        Ok(1..) => Err(Refusal::invalid(format!("Timeout cannot be greater than {TIMEOUT_MAX} seconds"))),
        _ => Err(Refusal::invalid("Timeout must be greater than 0")),
    }
}

fn attachment(mount: VolumeMount) -> Result<AttachmentSpec, Refusal> {
    let VolumeMount { name, path } = mount;
    let path = path.parse().map_err(|error| Refusal::invalid(format!("volumeMounts: {error}")))?;
    Ok(AttachmentSpec::new(name, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: serde_json::Value) -> NewSandbox {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_pause_that_keeps_files_only_cannot_be_ended_by_traffic() {
        let body = |pause: bool, memory: bool, resume: bool| {
            asked(serde_json::json!({ "templateID": "base", "autoPause": pause, "autoPauseMemory": memory,
                "autoResume": { "enabled": resume } }))
        };
        assert_eq!(at_timeout(&body(false, true, false)).unwrap(), (OnTimeout::Terminate, Wake::Never));
        assert_eq!(at_timeout(&body(true, true, true)).unwrap(), (OnTimeout::Suspend, Wake::Any));
        assert_eq!(at_timeout(&body(true, false, false)).unwrap(), (OnTimeout::SuspendFiles, Wake::Never));
        assert!(at_timeout(&body(false, false, false)).is_err());
        assert!(at_timeout(&body(true, false, true)).is_err());
    }

    #[test]
    fn a_time_limit_is_positive_and_bounded() {
        assert_eq!(timeout(1).unwrap(), Duration::from_secs(1));
        for wrong in [0, -1, i64::MIN, TIMEOUT_MAX + 1, i64::MAX] {
            assert_eq!(timeout(wrong).unwrap_err().status(), StatusCode::BAD_REQUEST, "{wrong}");
        }
    }
}
