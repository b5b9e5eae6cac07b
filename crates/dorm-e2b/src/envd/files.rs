//! Contents of files over HTTP: downloads, uploads, and files that are put together from others.

use std::collections::BTreeMap;

use axum::extract::Request;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use dorm_agent_client::Agent;
use serde::Serialize;

use super::access::{Call, Person};
use super::fault::{Failed, Fault};
use super::path;

mod compose;
mod download;
mod form;
mod gzip;
mod metadata;
mod upload;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use form::Form;
pub(super) use metadata::ATTRIBUTE;

/// A file that was written, as clients get it.
#[derive(Serialize, Debug)]
struct Written {
    name: String,
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl Written {
    fn new(path: &str, metadata: BTreeMap<String, String>) -> Self {
        Self { name: path::name(path).to_owned(), path: path.to_owned(), kind: "file", metadata }
    }
}

/// Answers a download.
pub(super) async fn download(call: &Call, request: Request) -> Response {
    match download::download(call, &request.into_parts().0).await {
        Ok(response) => response,
        Err(failed) => call.refuse(failed).await,
    }
}

/// Answers an upload.
pub(super) async fn upload(call: &Call, request: Request) -> Response {
    match upload::upload(call, request).await {
        Ok(written) => axum::Json(written).into_response(),
        Err(failed) => call.refuse(failed).await,
    }
}

/// Answers a request to put a file together.
pub(super) async fn compose(call: &Call, request: Request) -> Response {
    match compose::compose(call, request).await {
        Ok(written) => axum::Json(written).into_response(),
        Err(failed) => call.refuse(failed).await,
    }
}

/// A parameter of the query.
fn parameter(uri: &Uri, name: &str) -> Result<Option<String>, Fault> {
    crate::text::parameter(uri, name).map_err(|refusal| Fault::invalid(refusal.message()))
}

/// The user that a request names in its query or its header, or the default user.
async fn person(call: &Call, uri: &Uri, agent: &Agent) -> Result<Person, Failed> {
    match parameter(uri, "username")?.filter(|name| !name.is_empty()) {
        Some(name) => call.person_named(agent, Some(&name)).await,
        None => call.person(agent).await,
    }
}
