//! The control API: sandboxes, snapshots, templates and volumes.
//!
//! Paths are matched in their encoded form, since a name of a template may contain an encoded
//! slash.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{Caller, SandboxId, Wake};
use dorm_service::{SandboxView, Service, ServiceError};
use dorm_store::KeyScope;

use crate::door::{DOOR, E2b};
use crate::error::Refusal;
use crate::text::segments;

mod changes;
mod connect;
mod create;
mod list;
mod network;
mod page;
pub(crate) mod show;
mod snapshots;
mod templates;
pub(crate) mod usage;
mod volumes;
mod wire;

/// The parser that a fuzzer runs.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::list::metadata;
}

/// The version of a path: some have two, with other defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    First,
    Second,
}

impl Version {
    const fn as_str(self) -> &'static str {
        match self {
            Self::First => "1",
            Self::Second => "2",
        }
    }

    /// The time limit of a sandbox for which a request names none, in seconds.
    const fn timeout_by_default(self) -> i64 {
        match self {
            Self::First => 15,
            Self::Second => 300,
        }
    }
}

/// A request of the control API whose key was checked.
pub(crate) struct Call {
    /// The service of the project of the key.
    pub(crate) service: Service,
    /// The permission of the key. A response to one that only reads has no token that permits more.
    pub(crate) permission: Permission,
    /// The request.
    pub(crate) request: Request,
}

/// The permission of the key of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// To read and to change.
    Change,
    /// To read.
    Read,
}

/// Answers a request of the control API.
pub(crate) async fn answer(door: &E2b, request: Request) -> Response {
    match answered(door, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn answered(door: &E2b, request: Request) -> Result<Response, Refusal> {
    let path = segments(request.uri().path())?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let method = request.method().clone();
    if path == ["health"] && method == Method::GET {
        return Ok(StatusCode::OK.into_response());
    }
    if let ["templates", _, "files", hash] = path.as_slice()
        && method == Method::PUT
    {
        return templates::upload(door, hash, request).await;
    }
    if let ["volumecontent", rest @ ..] = path.as_slice() {
        return Ok(volumes::content::answer(door, rest, request).await);
    }
    let (service, permission) = service(door, &request)?;
    let call = Call { service, permission, request };
    let (version, rest) = match path.as_slice() {
        ["v2", rest @ ..] => (Version::Second, rest),
        rest => (Version::First, rest),
    };
    if let ["sandboxes", rest @ ..] = rest {
        return of_sandboxes(door, version, &method, rest, call).await;
    }
    match (&method, path.as_slice()) {
        (&Method::GET, ["snapshots"]) => snapshots::list(call).await,
        (_, ["templates" | "v2" | "v3", ..]) if templates::is_for(&path) => templates::answer(&path, call).await,
        (_, ["volumes", rest @ ..]) => volumes::answer(door, rest, call).await,
        (_, ["secrets" | "teams", ..]) => Err(Refusal::unsupported(format!(
            "this server has no {}: they belong to E2B's cloud; see docs/e2b.md",
            path[0]
        ))),
        _ => Err(unknown(&call)),
    }
}

/// Answers a request for sandboxes; `rest` is the path below them.
async fn of_sandboxes(
    door: &E2b,
    version: Version,
    method: &Method,
    rest: &[&str],
    call: Call,
) -> Result<Response, Refusal> {
    match (method, version, rest) {
        (&Method::POST, _, []) => create::create(door, version, call).await,
        (&Method::GET, Version::Second, []) => list::page(call).await,
        (&Method::GET, Version::First, []) => list::running(call).await,
        (&Method::GET, _, ["metrics"]) => usage::metrics_of_many(call).await,
        (&Method::GET, _, [id]) => describe(door, id, call).await,
        (&Method::DELETE, _, [id]) => changes::kill(id, call).await,
        (&Method::POST, _, [id, "connect"]) => connect::connect(door, version, id, call).await,
        (&Method::POST, _, [id, "resume"]) => connect::resume_paused(door, id, call).await,
        (&Method::POST, _, [id, "timeout"]) => changes::set_timeout(id, call).await,
        (&Method::POST, _, [id, "refreshes"]) => changes::refresh(id, call).await,
        (&Method::POST, _, [id, "pause"]) => changes::pause(id, call).await,
        (&Method::PUT, _, [id, "network"]) => changes::set_network(id, call).await,
        (&Method::POST, _, [id, "snapshots"]) => snapshots::take(id, call).await,
        (&Method::POST, _, [id, "fork"]) => snapshots::fork(door, id, call).await,
        (&Method::GET, _, [id, "metrics"]) => usage::metrics(id, call).await,
        (&Method::GET, Version::First, [id, "logs"]) => usage::logs(id, call).await,
        (&Method::GET, Version::Second, [id, "logs"]) => usage::log_page(id, call).await,
        _ => Err(unknown(&call)),
    }
}

async fn describe(door: &E2b, id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, permission, request } = call;
    let domain = show::domain(door, request.headers());
    let (_, view) = existing(&service, id).await?;
    Ok(axum::Json(show::detail(&service, &view, permission, domain).await).into_response())
}

fn unknown(call: &Call) -> Refusal {
    Refusal::not_found(format!("{} {} is not known here", call.request.method(), call.request.uri().path()))
}

/// Finds a sandbox that is not terminated, by the text in a path.
async fn existing(service: &Service, text: &str) -> Result<(SandboxId, SandboxView), Refusal> {
    let id = sandbox_id(text).ok_or_else(|| Refusal::no_sandbox(text))?;
    match service.describe(&id).await {
        Ok(view) if show::is_there(view.sandbox.state.name()) => Ok((id, view)),
        Ok(_) | Err(ServiceError::NoSandbox(_)) => Err(Refusal::no_sandbox(text)),
        Err(error) => Err(error.into()),
    }
}

/// The service of the project of a request, and what its key permits.
fn service(door: &E2b, request: &Request) -> Result<(Service, Permission), Refusal> {
    let credentials = door.access.credentials(request.extensions(), request.headers()).ok_or_else(|| {
        let message = "Invalid API key: create one with `dorm key create --form e2b` and set E2B_API_KEY";
        Refusal::new(StatusCode::UNAUTHORIZED, message)
    })?;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let caller = Caller { door: DOOR, credential: credentials.credential() };
    let service = door.access.daemon.for_project(&credentials.project)?.as_caller(Some(caller));
    match &credentials.scope {
        KeyScope::Full => Ok((service, Permission::Change)),
        KeyScope::ReadOnly if !changes => Ok((service.waking(Wake::Never), Permission::Read)),
        KeyScope::ReadOnly => Err(read_only()),
        KeyScope::Sandbox(_) => {
            let message = "this key is for one sandbox: use a key with full access";
            Err(Refusal::new(StatusCode::FORBIDDEN, message))
        }
    }
}

/// The refusal of a request that changes something, or that asks for what permits a change.
fn read_only() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "this key is read-only: use a key with full access")
}

/// Reads the id of a sandbox. Clients of earlier releases append a hyphen and the id of a client.
pub(crate) fn sandbox_id(text: &str) -> Option<SandboxId> {
    text.split('-').next()?.parse().ok()
}
