//! The headers that put a condition on a request: `Idempotency-Key`, `If-Match` and
//! `X-Dormouse-Wake`.
//!
//! A request for which a header has no meaning is refused, because a caller that sends it relies on
//! it.

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::header::HeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dorm_http::{Holder, WAKE};
use dorm_lifecycle::{ProjectId, RequestId, Wake};
use dorm_service::Service;
use sha2::{Digest as _, Sha256};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{OpenApi, Required};

use crate::error::{ApiError, ErrorCode};
use crate::extract::{Scoped, json_bytes, only, service_of};

/// The key of a request that may be sent again.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Tells that a response is the result of an earlier request with the same key.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The longest idempotency key.
const KEY_BYTES_MAX: usize = 255;

/// The effect of a retry of a POST without an idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    /// It makes something once more. With a key, it returns what the first request made.
    Makes,
    /// The same, and the body is too large for a fingerprint of the request.
    MakesFromUpload,
    /// Nothing that the first request has not done already.
    Repeats,
    /// It acts on programs or files inside a sandbox, or repeats deliveries; a key is refused.
    Acts,
}

/// The effect of a retry of each POST.
pub(crate) const RETRIES: &[(&str, Retry)] = &[
    ("/v1/sandboxes", Retry::Makes),
    ("/v1/sandboxes/{id}/suspend", Retry::Repeats),
    ("/v1/sandboxes/{id}/resume", Retry::Repeats),
    ("/v1/sandboxes/{id}/evict", Retry::Repeats),
    ("/v1/sandboxes/{id}/terminate", Retry::Repeats),
    ("/v1/sandboxes/{id}/checkpoint", Retry::Makes),
    ("/v1/sandboxes/{id}/clone", Retry::Makes),
    ("/v1/sandboxes/{id}/fork", Retry::Makes),
    ("/v1/sandboxes/{id}/rewind", Retry::Makes),
    ("/v1/sandboxes/{id}/restart", Retry::Makes),
    ("/v1/sandboxes/{id}/promote", Retry::Makes),
    ("/v1/sandboxes/{id}/timeouts", Retry::Repeats),
    ("/v1/sandboxes/{id}/extend", Retry::Repeats),
    ("/v1/sandboxes/{id}/egress", Retry::Repeats),
    ("/v1/sandboxes/{id}/holds", Retry::Makes),
    ("/v1/sandboxes/{id}/retention", Retry::Repeats),
    ("/v1/sandboxes/{id}/checkpoints", Retry::Repeats),
    ("/v1/sandboxes/{id}/volumes", Retry::Acts),
    ("/v1/sandboxes/{id}/ports/{port}/link", Retry::Acts),
    ("/v1/sandboxes/{id}/exec", Retry::Acts),
    ("/v1/sandboxes/{id}/processes", Retry::Acts),
    ("/v1/sandboxes/{id}/processes/{process}/stdin", Retry::Acts),
    ("/v1/sandboxes/{id}/processes/{process}/stdin/close", Retry::Repeats),
    ("/v1/sandboxes/{id}/processes/{process}/signal", Retry::Acts),
    ("/v1/sandboxes/{id}/processes/{process}/kill", Retry::Repeats),
    ("/v1/sandboxes/{id}/processes/{process}/resize", Retry::Repeats),
    ("/v1/sandboxes/{id}/services", Retry::Acts),
    ("/v1/sandboxes/{id}/services/{service}/stop", Retry::Repeats),
    ("/v1/sandboxes/{id}/files/mkdir", Retry::Acts),
    ("/v1/sandboxes/{id}/files/rename", Retry::Acts),
    ("/v1/sandboxes/{id}/files/attributes", Retry::Repeats),
    ("/v1/sandboxes/{id}/watchers", Retry::Acts),
    ("/v1/snapshots/{id}/files", Retry::Makes),
    ("/v1/snapshots/import", Retry::MakesFromUpload),
    ("/v1/snapshots/{id}/push", Retry::Repeats),
    ("/v1/snapshots/pull", Retry::Makes),
    ("/v1/images/import", Retry::Repeats),
    ("/v1/images/upload", Retry::Repeats),
    ("/v1/images/pull", Retry::Repeats),
    ("/v1/images/compose", Retry::Repeats),
    ("/v1/images/{reference}/export", Retry::Repeats),
    ("/v1/builds", Retry::Makes),
    ("/v1/builds/{build}/cancel", Retry::Repeats),
    ("/v1/templates", Retry::Repeats),
    ("/v1/templates/{template}/tags", Retry::Repeats),
    ("/v1/volumes", Retry::Makes),
    ("/v1/webhooks", Retry::Makes),
    ("/v1/webhooks/{id}/replay", Retry::Acts),
    ("/v1/keys", Retry::Makes),
    ("/v1/ensure", Retry::Makes),
    ("/v1/ensure/explain", Retry::Repeats),
    ("/v1/environments/{environment}/cancel", Retry::Repeats),
    ("/v1/environments/{environment}/release", Retry::Repeats),
    ("/v1/environments/{environment}/leases/{lease}/renew", Retry::Repeats),
    ("/v1/pools", Retry::Makes),
    ("/v1/pools/{pool}/claim", Retry::Makes),
    ("/v1/projects", Retry::Repeats),
    ("/v1/gc", Retry::Repeats),
    ("/v1/verify", Retry::Repeats),
];

/// The requests that change one sandbox and honour `If-Match`.
pub(crate) const CONDITIONAL: &[(&str, &str)] = &[
    ("delete", "/v1/sandboxes/{id}"),
    ("patch", "/v1/sandboxes/{id}"),
    ("post", "/v1/sandboxes/{id}/extend"),
    ("post", "/v1/sandboxes/{id}/suspend"),
    ("post", "/v1/sandboxes/{id}/resume"),
    ("post", "/v1/sandboxes/{id}/evict"),
    ("post", "/v1/sandboxes/{id}/terminate"),
    ("post", "/v1/sandboxes/{id}/checkpoint"),
    ("post", "/v1/sandboxes/{id}/rewind"),
    ("post", "/v1/sandboxes/{id}/timeouts"),
    ("post", "/v1/sandboxes/{id}/egress"),
    ("post", "/v1/sandboxes/{id}/holds"),
    ("delete", "/v1/sandboxes/{id}/holds/{hold}"),
    ("post", "/v1/sandboxes/{id}/retention"),
    ("post", "/v1/sandboxes/{id}/checkpoints"),
    ("post", "/v1/sandboxes/{id}/volumes"),
    ("delete", "/v1/sandboxes/{id}/volumes"),
];

/// Whether a route uses the inside of a sandbox, so that it may wake the sandbox.
fn uses_inside(path: &str) -> bool {
    const OF: &str = "/v1/sandboxes/{id}/";
    let inside = ["exec", "processes", "services", "pty", "files", "watchers"];
    path.strip_prefix(OF).is_some_and(|rest| inside.contains(&rest.split('/').next().unwrap_or_default()))
}

/// The meaning of `X-Dormouse-Wake` for a request for the inside of a sandbox.
fn wake(parts: &Parts, path: &str) -> Result<Option<Wake>, ApiError> {
    let Some(word) = only(&parts.headers, &WAKE)? else { return Ok(None) };
    if !uses_inside(path) {
        let detail = format!("{} {path} does not support X-Dormouse-Wake", parts.method);
        return Err(ApiError::invalid(detail, "omit the header"));
    }
    match word {
        "any" => Ok(Some(Wake::Any)),
        "never" => Ok(Some(Wake::Never)),
        _ => {
            let detail = format!("X-Dormouse-Wake is '{word}'");
            Err(ApiError::invalid(
                detail,
                "send `any` to wake the sandbox, or `never` to get an error if it is suspended",
            ))
        }
    }
}

/// The service whose calls wake sandboxes as the header says. A read-only key never does.
fn waking(service: Service, wake: Wake) -> Result<Service, ApiError> {
    if wake == Wake::Any && service.wakes_nothing() {
        let detail = "this key is read-only, and waking a sandbox changes it";
        let hint = "omit X-Dormouse-Wake, or use a key with full access";
        return Err(ApiError::new(ErrorCode::Forbidden, detail, hint));
    }
    Ok(service.waking(wake))
}

/// Passes a request on with its conditions, and answers one whose conditions cannot be met.
pub(crate) async fn apply(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if ![&IDEMPOTENCY_KEY, &header::IF_MATCH, &WAKE].iter().any(|name| headers.contains_key(*name)) {
        return next.run(request).await;
    }
    match conditional(request).await {
        Ok((request, is_retry)) => {
            let mut response = next.run(request).await;
            if is_retry {
                response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            }
            response
        }
        Err(error) => error.into_response(),
    }
}

/// Returns the request with the service for it, and whether it is a retry.
async fn conditional(request: Request) -> Result<(Request, bool), ApiError> {
    let (mut parts, mut body) = request.into_parts();
    let Some(path) = parts.extensions.get::<MatchedPath>().cloned() else {
        return Ok((Request::from_parts(parts, body), false));
    };
    let (revision, wake) = (revision(&parts, path.as_str())?, wake(&parts, path.as_str())?);
    let key = key(&parts, path.as_str())?;
    if revision.is_none() && wake.is_none() && key.is_none() {
        return Ok((Request::from_parts(parts, body), false));
    }
    let mut service = service_of(&parts)?;
    if let Some(revision) = revision {
        service = service.if_revision(revision);
    }
    if let Some(wake) = wake {
        service = waking(service, wake)?;
    }
    if let Some((key, retry)) = key {
        let fingerprint = match retry {
            Retry::Makes => {
                let collected = json_bytes(body).await?;
                let fingerprint = fingerprint(&parts, &collected);
                body = Body::new(collected);
                fingerprint
            }
            Retry::MakesFromUpload | Retry::Repeats | Retry::Acts => fingerprint(&parts, &[]),
        };
        let id = id(parts.extensions.get::<Holder>(), service.project(), key.as_bytes());
        service = service.for_request(&id, fingerprint).await?;
    }
    let is_retry = service.is_retry();
    parts.extensions.insert(Scoped(service));
    Ok((Request::from_parts(parts, body), is_retry))
}

/// The idempotency key of a request that makes something.
fn key<'a>(parts: &'a Parts, path: &str) -> Result<Option<(&'a str, Retry)>, ApiError> {
    // The other methods can be repeated.
    if parts.method != Method::POST {
        return Ok(None);
    }
    let Some(key) = only(&parts.headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let retry = RETRIES.iter().find(|(known, _)| *known == path).map_or(Retry::Acts, |(_, retry)| *retry);
    match retry {
        Retry::Makes | Retry::MakesFromUpload => {}
        Retry::Repeats => return Ok(None),
        Retry::Acts => {
            let detail = format!("POST {path} does not support Idempotency-Key");
            return Err(ApiError::invalid(
                detail,
                "omit the header, and check before a retry what the first request did",
            ));
        }
    }
    if !(1..=KEY_BYTES_MAX).contains(&key.len()) || !key.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        let detail = format!("Idempotency-Key must have 1 to {KEY_BYTES_MAX} visible ASCII characters");
        return Err(ApiError::invalid(detail, "use a random UUID for each request"));
    }
    Ok(Some((key, retry)))
}

/// The revision that `If-Match` demands. `*` demands nothing, because a sandbox that does not exist
/// cannot be changed anyway.
fn revision(parts: &Parts, path: &str) -> Result<Option<u64>, ApiError> {
    let Some(tag) = only(&parts.headers, &header::IF_MATCH)? else { return Ok(None) };
    let method = &parts.method;
    if !CONDITIONAL.iter().any(|(known, of)| known.eq_ignore_ascii_case(method.as_str()) && *of == path) {
        let detail = format!("{method} {path} does not support If-Match");
        return Err(ApiError::invalid(detail, "omit the header"));
    }
    if tag == "*" {
        return Ok(None);
    }
    let number = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| {
        let detail = format!("If-Match is '{tag}', which is not the ETag of a sandbox");
        ApiError::invalid(detail, "send the ETag of GET /v1/sandboxes/{id} as it is, or `\"REVISION\"`")
    })
}

/// The id of a request: two callers can use the same key, and one caller in two projects.
fn id(caller: Option<&Holder>, project: &ProjectId, key: &[u8]) -> RequestId {
    let caller: &[u8] = match caller {
        None | Some(Holder::OwnerSocket | Holder::OwnerKey) => b"",
        Some(Holder::ApiKey { hash, .. }) => hash,
    };
    let hash = match *project == ProjectId::local() {
        true => hash([caller, key]),
        false => hash([caller, project.as_str().as_bytes(), key]),
    };
    let [bytes @ .., _, _, _, _, _, _, _, _, _, _, _, _] = hash;
    RequestId::from_random(bytes)
}

fn fingerprint(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let uri = &parts.uri;
    hash([parts.method.as_str().as_bytes(), uri.path().as_bytes(), uri.query().unwrap_or_default().as_bytes(), body])
}

/// Hashes parts, so that what belongs to one cannot be moved to the next.
fn hash<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Adds the headers to the operations that honour them.
pub(crate) fn describe(document: &mut OpenApi) {
    let header = |name: &str, text: &str| -> Parameter {
        let schema = utoipa::openapi::schema::Object::with_type(utoipa::openapi::schema::Type::String);
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(text))
            .schema(Some(schema))
            .build()
    };
    let key = header(
        "Idempotency-Key",
        "Unique key of this request, up to 255 characters. A retry with the same key returns what the first request \
         made.",
    );
    let tag = header("If-Match", "`ETag` of the sandbox. The request fails with 412 if the sandbox was changed since.");
    let wake = header(
        "X-Dormouse-Wake",
        "`any` to resume the sandbox first if it is suspended, `never` for an error then. Default: the `wake` policy of \
         the sandbox. Requests with a read-only key never resume a sandbox.",
    );
    for (path, item) in &mut document.paths.paths {
        let operations: [(&str, &mut Option<Operation>); 5] = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("patch", &mut item.patch),
            ("delete", &mut item.delete),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            let parameters = operation.parameters.get_or_insert_default();
            let makes = |(known, retry): &(&str, Retry)| {
                *known == path && matches!(retry, Retry::Makes | Retry::MakesFromUpload)
            };
            if method == "post" && RETRIES.iter().any(makes) {
                parameters.push(key.clone().into());
            }
            if CONDITIONAL.contains(&(method, path.as_str())) {
                parameters.push(tag.clone().into());
            }
            if uses_inside(path) {
                parameters.push(wake.clone().into());
            }
            if parameters.is_empty() {
                operation.parameters = None;
            }
        }
    }
}
