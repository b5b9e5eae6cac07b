//! The service `filesystem.Filesystem`: files of a sandbox, by path.

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use dorm_agent_client::{AgentError, FileKind, GuestPath, PAGE_MAX, RemoveScope};
use dorm_service::Use;

use super::access::Call;
use super::budget::Budget;
use super::connect;
use super::fault::{Code, Failed, Fault};

mod entry;
mod watch;
mod wire;

use entry::Entry;
use wire::{EntryResponse, ListRequest, ListResponse, MoveRequest, PathRequest};

/// The path of the service.
pub(crate) const PATH: &str = "/filesystem.Filesystem/";

/// Answers a call of a method.
pub(crate) async fn answer(call: &Call, method: &str, request: Request) -> Response {
    if request.method() != Method::POST {
        return connect::no_method(request.method(), request.uri().path());
    }
    match method {
        "Stat" => connect::unary(call, request, |asked| stat(call, asked)).await,
        "MakeDir" => connect::unary(call, request, |asked| make_directory(call, asked)).await,
        "Move" => connect::unary(call, request, |asked| rename(call, asked)).await,
        "ListDir" => connect::unary(call, request, |asked| list(call, asked)).await,
        "Remove" => connect::unary(call, request, |asked| remove(call, asked)).await,
        "WatchDir" => connect::server_stream(call, request, watch::OPTIONS, |asked| watch::stream(call, asked)).await,
        "CreateWatcher" => connect::unary(call, request, |asked| watch::create(call, asked)).await,
        "GetWatcherEvents" => connect::unary(call, request, |asked| watch::events(call, asked)).await,
        "RemoveWatcher" => connect::unary(call, request, |asked| watch::remove(call, asked)).await,
        _ => connect::no_method(request.method(), request.uri().path()),
    }
}

async fn stat(call: &Call, asked: PathRequest) -> Result<EntryResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let path = call.person(&agent).await?.path(&asked.path.unwrap_or_default())?;
    match agent.describe(&path).await {
        Ok(found) => Ok(EntryResponse { entry: Entry::of(found) }),
        // A part of the path is a file.
        Err(AgentError::NotADirectory(path)) => Err(missing(&path)),
        Err(error) => Err(error.into()),
    }
}

fn missing(path: &GuestPath) -> Failed {
    Fault::new(Code::NotFound, format!("path '{path}' does not exist")).into()
}

async fn make_directory(call: &Call, asked: PathRequest) -> Result<EntryResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let person = call.person(&agent).await?;
    let path = person.path(&asked.path.unwrap_or_default())?;
    match agent.make_new_directory(&path, Some(person.user)).await {
        Ok(_) => Ok(EntryResponse { entry: Entry::of(agent.describe(&path).await?) }),
        Err(AgentError::Exists(_)) => {
            let found = agent.describe(&path).await?;
            let kind = found.target.map_or(found.stat.kind, |target| target.kind);
            match kind {
                FileKind::Directory => {
                    Err(Fault::new(Code::AlreadyExists, format!("directory already exists: {path}")).into())
                }
                FileKind::File | FileKind::Link | FileKind::Other => {
                    Err(Fault::invalid(format!("path already exists but it is not a directory: {path}")).into())
                }
            }
        }
        Err(error) => Err(error.into()),
    }
}

async fn rename(call: &Call, asked: MoveRequest) -> Result<EntryResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let person = call.person(&agent).await?;
    let from = person.path(&asked.source.unwrap_or_default())?;
    let to = person.path(&asked.destination.unwrap_or_default())?;
    agent.move_to(&from, &to, Some(person.user)).await?;
    Ok(EntryResponse { entry: Entry::of(agent.describe(&to).await?) })
}

async fn list(call: &Call, asked: ListRequest) -> Result<ListResponse, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let path = call.person(&agent).await?.path(&asked.path.unwrap_or_default())?;
    let depth = asked.depth.unwrap_or_default().0.max(1);
    let (mut entries, mut budget) = (Vec::new(), Budget::of_call());
    let mut after: Option<GuestPath> = None;
    loop {
        let page = agent.describe_entries(&path, depth, after.as_ref(), PAGE_MAX).await?;
        let charged = budget.charge(page.items.len(), page.bytes);
        charged.map_err(|spent| spent.refusal(&format!("'{path}' has"), "list it with a smaller depth"))?;
        after = page.items.last().map(|last| last.path.clone());
        entries.extend(page.items.into_iter().map(Entry::of));
        if !page.more {
            return Ok(ListResponse { entries });
        }
    }
}

async fn remove(call: &Call, asked: PathRequest) -> Result<wire::Empty, Failed> {
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let path = call.person(&agent).await?.path(&asked.path.unwrap_or_default())?;
    match agent.remove(&path, RemoveScope::Tree).await {
        Ok(()) | Err(AgentError::NotFound(_) | AgentError::NotADirectory(_)) => Ok(wire::Empty {}),
        Err(error) => Err(error.into()),
    }
}
