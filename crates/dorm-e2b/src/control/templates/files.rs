//! The files of steps: a client asks for an address under a hash of its own making, and sends an
//! archive there without its key. The archive becomes a build context with this hash.

use std::collections::BTreeMap;
use std::io;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dorm_http::{Scheme, Standing};
use dorm_lifecycle::{Digest, ProjectId};
use dorm_service::Code;
use futures_util::TryStreamExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::super::{Call, Permission, read_only};
use super::wire::FileSlot;
use crate::door::{self, E2b};
use crate::error::Refusal;
use crate::text::parameter;

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORBIDDEN: &str = "this address for an upload is not valid any more: request another one";

/// Answers a request for the address of an upload. The clients send no files that are there, unless
/// their user asks for it.
pub(super) async fn slot(id: &str, hash: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, permission, request } = call;
    if permission == Permission::Read {
        // The address permits an upload.
        return Err(read_only());
    }
    let key = key(hash)?;
    let present = match service.context(&key).await {
        Ok(_) => true,
        Err(error) if error.code() == Code::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
    let (project, ticket) = (service.project(), service.upload_ticket(&key));
    let path = format!("/templates/{id}/files/{key}?project={project}&ticket={ticket}");
    let url = format!("{}{path}", origin(&request)?);
    Ok((StatusCode::CREATED, Json(FileSlot { present, url, headers: BTreeMap::new() })).into_response())
}

/// Receives the files of a step.
pub(crate) async fn upload(door: &E2b, hash: &str, request: Request) -> Result<Response, Refusal> {
    let forbidden = || Refusal::new(StatusCode::FORBIDDEN, FORBIDDEN);
    let key = key(hash)?;
    let project = parameter(request.uri(), "project")?.and_then(|project| project.parse::<ProjectId>().ok());
    let ticket = parameter(request.uri(), "ticket")?.unwrap_or_default();
    let service = door.access.daemon.for_project(&project.ok_or_else(forbidden)?).map_err(|_| forbidden())?;
    if !service.is_upload_ticket(&key, &ticket) {
        return Err(forbidden());
    }
    door::stand(&request, Standing::Known);
    let length = length(request.headers());
    let body = request.into_body().into_data_stream().map_err(io::Error::other);
    service.upload_context(&key, body, length).await?;
    Ok(Json(json!({})).into_response())
}

fn key(hash: &str) -> Result<Digest, Refusal> {
    hash.parse().map_err(|_| Refusal::invalid(format!("'{hash}' is not a hash: give 64 lower-case hexadecimal digits")))
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The scheme and the host under which the client has reached this server.
fn origin(request: &Request) -> Result<String, Refusal> {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let host = host.ok_or_else(|| Refusal::invalid("the request names no host to upload to"))?;
    // Behind a proxy that ends TLS, the client must upload over TLS as well.
    let is_secure = headers.get(FORWARDED_PROTO).is_some_and(|scheme| scheme == "https")
        || request.extensions().get::<Scheme>() == Some(&Scheme::Https);
    let scheme = if is_secure { Scheme::Https } else { Scheme::Http };
    Ok(format!("{}://{host}", scheme.as_str()))
}
