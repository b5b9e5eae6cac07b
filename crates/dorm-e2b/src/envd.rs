//! The daemon that clients of E2B expect at port 49983 of every sandbox. It runs here, in front of
//! the agent of the sandbox, and not inside.
//!
//! ```text
//! request ─► access ─┬─► process, filesystem: calls of the Connect protocol
//!                    ├─► files: contents of files over HTTP
//!                    └─► state: health, figures and variables of the sandbox
//! ```

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::SandboxId;

use crate::door::{self as doors, E2b};
use crate::error::Refusal;
use crate::ports;

mod access;
mod budget;
mod connect;
mod cors;
mod fault;
mod files;
mod filesystem;
mod path;
mod process;
mod rest;
mod signature;
mod state;

use access::Needs;
use rest::Rest;
use signature::{Operation, Signature};

/// The parsers that fuzzers run.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::connect::frames::Decoder;
    pub(crate) use super::fault::Fault;
    pub(crate) use super::files::Form;
    pub(crate) use super::process::message;
}

/// The port of `envd`.
pub(crate) const PORT: u16 = 49_983;

/// Answers a request for the `envd` of a sandbox.
pub(crate) async fn answer(door: &E2b, sandbox: SandboxId, request: Request) -> Response {
    let page = cors::Page::of(&request);
    let answer = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        read(door, sandbox, request).await
    };
    page.may_read(answer)
}

/// Answers a request when all of it was sent. A stream from the client may never end.
async fn read(door: &E2b, sandbox: SandboxId, request: Request) -> Response {
    if process::is_stream_of_client(request.uri().path()) {
        return routed(door, sandbox, request).await;
    }
    let (request, rest) = Rest::of(request);
    let answer = routed(door, sandbox, request).await;
    rest.discard().await;
    answer
}

async fn routed(door: &E2b, sandbox: SandboxId, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let needs = match (path.as_str(), &method) {
        ("/health", &Method::GET) => Needs::Nothing,
        ("/files", &Method::GET | &Method::HEAD) => Needs::TokenOrSignature(Operation::Read),
        ("/files", &Method::POST) => Needs::TokenOrSignature(Operation::Write),
        ("/metrics" | "/envs", &Method::GET) | ("/files/compose", &Method::POST) => Needs::Token,
        ("/health" | "/files" | "/metrics" | "/envs" | "/files/compose", _) => {
            let message = format!("{method} is not allowed for {path}");
            return Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response();
        }
        (path, _) if path.starts_with(process::PATH) || path.starts_with(filesystem::PATH) => Needs::Token,
        (path, _) => return Refusal::not_found(format!("path '{path}' is not known here")).into_response(),
    };
    let call = match access::admit(door, sandbox, (request.headers(), request.uri()), needs).await {
        Ok(call) => call,
        Err(response) => return response,
    };
    if !doors::stand(&request, call.standing) {
        return ports::crowded(call.sandbox());
    }
    match (path.as_str(), &method) {
        ("/health", _) => state::health(&call).await,
        ("/metrics", _) => state::metrics(&call).await,
        ("/envs", _) => state::variables(&call),
        ("/files", &Method::POST) => files::upload(&call, request).await,
        ("/files", _) => files::download(&call, request).await,
        ("/files/compose", _) => files::compose(&call, request).await,
        (path, _) => match path.strip_prefix(process::PATH) {
            Some(name) => process::answer(&call, name, request).await,
            None => {
                let name = path.strip_prefix(filesystem::PATH).unwrap_or_default();
                filesystem::answer(&call, name, request).await
            }
        },
    }
}

/// Whether a request is for a URL of a file with a signature, which does not name its sandbox.
pub(crate) fn is_signed_file(request: &Request) -> bool {
    request.uri().path() == "/files" && request.uri().query().is_some_and(|query| query.contains("signature="))
}

/// Answers a request for a URL of a file with a signature: that of the sandbox with whose token it
/// was made.
pub(crate) async fn answer_signed(door: &E2b, request: Request) -> Response {
    let page = cors::Page::of(&request);
    let operation = match *request.method() {
        Method::OPTIONS => return page.may_read(StatusCode::NO_CONTENT.into_response()),
        Method::POST => Operation::Write,
        _ => Operation::Read,
    };
    let signature = Signature::of(request.uri(), operation);
    let living = match door.access.daemon.all_living().await {
        Ok(living) => living,
        Err(error) => return page.may_read(Refusal::from(error).into_response()),
    };
    let daemon = &door.access.daemon;
    match living.into_iter().find(|sandbox| signature.is_made_with(&crate::tokens::envd(daemon, sandbox))) {
        Some(sandbox) => answer(door, sandbox, request).await,
        None => page.may_read(Refusal::new(StatusCode::UNAUTHORIZED, signature::INVALID).into_response()),
    }
}
