//! Parsing requests into types that cannot be invalid.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::HeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dorm_agent_client::{GuestPath, GuestString, ServiceName, User, legible};
use dorm_api_types as wire;
use dorm_http::Door;
use dorm_http::bodies::{self, BodyError, Collected};
use dorm_lifecycle::{ApiKeyId, HoldId, IdError, ProjectId, SandboxId, WebhookId};
use dorm_service::{Code, ProjectProblem, Service, ServiceError};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, ErrorCode};
use crate::state::Api;

/// The longest JSON body, in bytes.
pub(crate) const JSON_BYTES_MAX: usize = 1 << 20;
/// The longest time that a request can set: 100 years.
const SECONDS_MAX: f64 = 100.0 * 366.0 * 86_400.0;

/// A JSON body. An empty body is read as `{}`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Api) -> Result<Self, ApiError> {
        let body = json_bytes(request.into_body()).await?;
        let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
        serde_json::from_slice(body)
            .map(Self)
            .map_err(|error| ApiError::invalid(format!("invalid request body: {error}"), ""))
    }
}

/// The bytes of a JSON body.
pub(crate) async fn json_bytes(body: Body) -> Result<Collected, ApiError> {
    bodies::collect(body, JSON_BYTES_MAX).await.map_err(unread)
}

/// The response to a request whose body, or a part of it, cannot be kept.
pub(crate) fn unread(error: BodyError) -> ApiError {
    let detail = error.to_string();
    match error {
        BodyError::TooLong(_) => {
            let hint = "write large input to a file in the sandbox first";
            ApiError::invalid("the JSON body is larger than 1 MiB", hint).with_status(StatusCode::PAYLOAD_TOO_LARGE)
        }
        BodyError::NoRoom => {
            let error = ApiError::new(Code::Unavailable, detail, "send the request again");
            error.again_later(StatusCode::SERVICE_UNAVAILABLE)
        }
        BodyError::Stalled => {
            ApiError::invalid(detail, "send the request again").with_status(StatusCode::REQUEST_TIMEOUT)
        }
        BodyError::Broken(_) => ApiError::invalid(detail, "send the request again"),
    }
}

/// The service of the project of a request, under the conditions of that request, as an extension
/// of it.
#[derive(Clone)]
pub(crate) struct Scoped(pub(crate) Service);

/// The service of the project of the request, under the conditions of the request.
pub(crate) struct ForRequest(pub(crate) Service);

impl<S: Sync> FromRequestParts<S> for ForRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        service_of(parts).map(Self)
    }
}

/// The service for a request whose key was checked. No request is answered without: it would be for
/// any project.
pub(crate) fn service_of(parts: &Parts) -> Result<Service, ApiError> {
    let scoped = parts.extensions.get::<Scoped>();
    let missing = || ApiError::new(Code::Internal, "the project of the request is not known", "please report this");
    scoped.map(|Scoped(service)| service.clone()).ok_or_else(missing)
}

/// Whether the caller may use and take names of the project. A key for one sandbox may not: with a
/// header rule for a host of its own it would learn the secrets that the rule names, and a snapshot
/// under the name of an image would be taken for that image.
#[derive(Clone, Copy)]
pub(crate) struct UsesNames(pub(crate) bool);

impl<S: Sync> FromRequestParts<S> for UsesNames {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(false)))
    }
}

/// Proof that the caller may name paths of the daemon's host: the request came through the owner's
/// socket. Over the network a key would otherwise open every file of the host.
pub(crate) struct HostPaths;

impl<S: Sync> FromRequestParts<S> for HostPaths {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Door>() {
            Some(Door::Owner) => Ok(Self),
            Some(Door::Network(_)) | None => Err(ApiError::new(
                ErrorCode::Forbidden,
                "paths on the daemon's host are accepted only over its Unix socket api.sock",
                "upload the archive with POST /v1/images/upload, or download it with GET /v1/images/{reference}/download",
            )),
        }
    }
}

/// A query without unknown keys.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        if !parts.uri.query().is_none_or(is_text) {
            let hint = "reach a file whose name is not UTF-8 with a command: `exec` accepts arguments in base64";
            return Err(ApiError::invalid("invalid query: it is not UTF-8", hint));
        }
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let axum::extract::Query(query) = query.map_err(|rejection| {
            let mut text = rejection.to_string();
            if let Some(cause) = std::error::Error::source(&rejection) {
                text = cause.to_string();
            }
            ApiError::invalid(format!("invalid query: {text}"), "")
        })?;
        Ok(Self(query))
    }
}

/// Whether a query is UTF-8 once it is decoded. Its parser would replace what is not, and the
/// request would be about another file.
fn is_text(query: &str) -> bool {
    percent_decode_str(query).decode_utf8().is_ok()
}

/// The sandbox of `{id}`: an id, or the name of a living sandbox.
pub(crate) struct Sandbox(pub(crate) SandboxId);

impl FromRequestParts<Api> for Sandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let named = parameter(parts, api, "id").await?;
        let service = service_of(parts)?;
        match service.find(&named).await {
            // A retry is answered even if the sandbox was terminated since.
            Err(error @ ServiceError::NoSandbox(_)) if service.is_retry() => {
                Ok(Self(service.find_terminated(&named).await?.ok_or(error)?))
            }
            found => Ok(Self(found?)),
        }
    }
}

/// The project of `{project}`.
pub(crate) struct Project(pub(crate) ProjectId);

impl FromRequestParts<Api> for Project {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let project = parameter(parts, api, "project").await?;
        // Whatever cannot be a name is the name of no project.
        project.parse().map(Self).map_err(|_| ServiceError::from(ProjectProblem::Missing(project)).into())
    }
}

/// The secret of `{secret}`.
pub(crate) struct SecretName(pub(crate) dorm_lifecycle::SecretName);

impl FromRequestParts<Api> for SecretName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let name = parameter(parts, api, "secret").await?;
        name.parse().map(Self).map_err(|error: IdError| ApiError::invalid(error.to_string(), "choose another name"))
    }
}

/// The process of `{process}` in the sandbox of `{id}`.
pub(crate) struct Process(pub(crate) SandboxId, pub(crate) u64);

impl FromRequestParts<Api> for Process {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Sandbox(sandbox) = Sandbox::from_request_parts(parts, api).await?;
        let process = parameter(parts, api, "process").await?;
        let process = process.parse().map_err(|_| {
            let message = format!("'{process}' is not a process handle, which is a number");
            ApiError::invalid(message, "list the processes of the sandbox")
        })?;
        Ok(Self(sandbox, process))
    }
}

/// The watcher of `{watcher}` in the sandbox of `{id}`.
pub(crate) struct Watcher(pub(crate) SandboxId, pub(crate) u64);

impl FromRequestParts<Api> for Watcher {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Sandbox(sandbox) = Sandbox::from_request_parts(parts, api).await?;
        let watcher = parameter(parts, api, "watcher").await?;
        let watcher = watcher.parse().map_err(|_| {
            let message = format!("'{watcher}' is not a watcher handle, which is a number");
            ApiError::invalid(message, "list the watchers of the sandbox")
        })?;
        Ok(Self(sandbox, watcher))
    }
}

/// The service of `{service}` in the sandbox of `{id}`.
pub(crate) struct NamedService(pub(crate) SandboxId, pub(crate) ServiceName);

impl FromRequestParts<Api> for NamedService {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Sandbox(sandbox) = Sandbox::from_request_parts(parts, api).await?;
        Ok(Self(sandbox, service_name(parameter(parts, api, "service").await?)?))
    }
}

/// The name of a service.
pub(crate) fn service_name(text: String) -> Result<ServiceName, ApiError> {
    let shown = legible(&text);
    ServiceName::try_from(text).map_err(|_| {
        let hint = "use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit";
        ApiError::invalid(format!("'{shown}' is not the name of a service"), hint)
    })
}

/// The hold of `{hold}`.
pub(crate) struct Hold(pub(crate) HoldId);

impl FromRequestParts<Api> for Hold {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let hold = parameter(parts, api, "hold").await?;
        hold.parse().map(Self).map_err(|error: IdError| ApiError::invalid(format!("hold: {error}"), ""))
    }
}

/// The webhook of `{id}`.
pub(crate) struct Webhook(pub(crate) WebhookId);

impl FromRequestParts<Api> for Webhook {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let id = parameter(parts, api, "id").await?;
        id.parse().map(Self).map_err(|error: IdError| ApiError::invalid(format!("webhook: {error}"), ""))
    }
}

/// The API key of `{id}`.
pub(crate) struct ApiKey(pub(crate) ApiKeyId);

impl FromRequestParts<Api> for ApiKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let id = parameter(parts, api, "id").await?;
        id.parse()
            .map(Self)
            .map_err(|error: IdError| ApiError::invalid(format!("key: {error}"), "list keys with GET /v1/keys"))
    }
}

/// The port of `{port}` in the sandbox of `{id}`.
pub(crate) struct Port(pub(crate) SandboxId, pub(crate) u16);

impl FromRequestParts<Api> for Port {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Sandbox(sandbox) = Sandbox::from_request_parts(parts, api).await?;
        let port = parameter(parts, api, "port").await?;
        match port.parse() {
            Ok(number) if number != 0 => Ok(Self(sandbox, number)),
            _ => Err(ApiError::invalid(format!("'{port}' is not a port; ports are 1 to 65535"), "")),
        }
    }
}

/// The only value of a header.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    Ok(dorm_http::only(headers, name)?)
}

/// A part of the path, decoded.
pub(crate) async fn parameter(parts: &mut Parts, api: &Api, name: &str) -> Result<String, ApiError> {
    let Path(mut found) = Path::<HashMap<String, String>>::from_request_parts(parts, api)
        .await
        .map_err(|rejection| ApiError::invalid(rejection.body_text(), ""))?;
    found.remove(name).ok_or_else(|| ApiError::invalid(format!("the path has no {name}"), ""))
}

/// Whether the caller asks for server-sent events.
pub(crate) struct WantsEvents(pub(crate) bool);

impl<S: Sync> FromRequestParts<S> for WantsEvents {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let accepted = parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let wanted = accepted
            .flat_map(|value| value.split(','))
            .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"));
        Ok(Self(wanted))
    }
}

/// A duration in seconds: more than zero, and at most 100 years.
pub(crate) fn seconds(field: &str, value: f64) -> Result<Duration, ApiError> {
    if value > 0.0 && value <= SECONDS_MAX {
        return Ok(Duration::from_secs_f64(value).max(Duration::from_millis(1)));
    }
    let message = format!("{field} is {value}: it must be more than 0 and at most {SECONDS_MAX}");
    Err(ApiError::invalid(message, "leave it out for no limit"))
}

/// A duration in seconds, more than zero, as milliseconds of which there may be so many.
pub(crate) fn milliseconds(field: &str, value: f64, most: u64) -> Result<u64, ApiError> {
    let time = if value > 0.0 && value <= SECONDS_MAX { Duration::from_secs_f64(value) } else { Duration::MAX };
    match u64::try_from(time.as_millis()) {
        Ok(time) if time <= most => Ok(time.max(1)),
        _ => {
            let message = format!("{field} is {value}: it must be more than 0 and at most {}", most / 1000);
            Err(ApiError::invalid(message, "leave it out for the default"))
        }
    }
}

/// A path in the sandbox, from a query.
pub(crate) fn guest_path(text: &str) -> Result<GuestPath, ApiError> {
    GuestPath::new(text).map_err(|error| ApiError::invalid(error.to_string(), ""))
}

/// A path in the sandbox as the cursor of a list.
pub(crate) fn place_in_list(path: &GuestPath) -> String {
    URL_SAFE_NO_PAD.encode(path.as_bytes())
}

/// Reads a cursor written by [`place_in_list`].
pub(crate) fn path_in_list(text: &str) -> Result<GuestPath, ApiError> {
    let path = URL_SAFE_NO_PAD.decode(text).ok().and_then(|path| GuestPath::new(path).ok());
    path.ok_or_else(|| ApiError::invalid("after is not a cursor", "use `next` of the previous page"))
}

/// A path in the sandbox, from a body.
pub(crate) fn guest_path_of(field: &str, text: &wire::Text) -> Result<GuestPath, ApiError> {
    GuestPath::new(bytes_of(field, text)?).map_err(|error| ApiError::invalid(format!("{field}: {error}"), ""))
}

/// A string for the sandbox, from a body.
pub(crate) fn guest_string(field: &str, text: &wire::Text) -> Result<GuestString, ApiError> {
    GuestString::new(bytes_of(field, text)?).map_err(|error| ApiError::invalid(format!("{field}: {error}"), ""))
}

/// Bytes from a body.
pub(crate) fn bytes_of(field: &str, text: &wire::Text) -> Result<Vec<u8>, ApiError> {
    text.to_bytes().map_err(|error| ApiError::invalid(format!("{field} is not base64: {error}"), ""))
}

/// A user of the sandbox, by name or number.
pub(crate) fn user(text: &str) -> Result<User, ApiError> {
    let hint = "give a name, a number, or UID:GID";
    text.parse().map_err(|_| ApiError::invalid(format!("'{text}' is not a user"), hint))
}

/// The default size of a page.
const PAGE: usize = 100;
/// The largest size of a page.
pub(crate) const PAGE_MAX: usize = 1000;

/// The size of a page.
pub(crate) fn page_limit(asked: Option<usize>) -> Result<usize, ApiError> {
    page_limit_or(asked, PAGE)
}

/// The size of a page, with another default.
pub(crate) fn page_limit_or(asked: Option<usize>, default: usize) -> Result<usize, ApiError> {
    let limit = asked.unwrap_or(default);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit is {limit}: it must be between 1 and {PAGE_MAX}"), ""));
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_text_if_all_of_it_is_utf8() {
        for text in ["", "path=/a%20b", "path=/%C3%BC", "path=%", "path=%zz", "path=/ü%", "a=1&b=%25ff"] {
            assert!(is_text(text), "{text}");
        }
        for text in ["path=%ff", "path=/a%C3", "a=1&b=%c3%28"] {
            assert!(!is_text(text), "{text}");
        }
    }
}
