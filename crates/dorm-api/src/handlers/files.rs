//! Files inside a sandbox. Contents are streamed, so memory use does not depend on the size of a
//! file.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_agent_client::{FileKind, Parents, RemoveScope, Scope, WriteAt, WriteOptions};
use dorm_api_types as wire;
use dorm_http::range::{self, Part};
use dorm_http::sse;
use dorm_service::Use;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::{self, Of};
use crate::error::{self, ApiError};
use crate::extract::{
    ForRequest, Json, PAGE_MAX, Query, Sandbox, guest_path, guest_path_of, page_limit_or, path_in_list, place_in_list,
    user,
};
use crate::state::Api;

/// The file to read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadQuery {
    /// Absolute path in the sandbox.
    path: String,
}

/// Read a file
///
/// Follows symbolic links. Supports `Range` requests for a single range of bytes. The response is
/// cut off if the rest of the file cannot be read.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", operation_id = "readFile", tag = "files",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ReadQuery,
        ("Range" = Option<String>, Header, description = "One range: `bytes=FROM-`, `bytes=FROM-TO` or `bytes=-LAST`."),
    ),
    responses(
        (status = 200, description = "The contents of the file.",
            content_type = "application/octet-stream", body = wire::Binary),
        (status = 206, description = "The requested range.",
            content_type = "application/octet-stream", body = wire::Binary),
        (status = 416, description = "The file has no such range.", body = wire::Problem,
            content_type = "application/problem+json"),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn read(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    headers: HeaderMap,
    Query(query): Query<ReadQuery>,
) -> Result<Response, ApiError> {
    let path = guest_path(&query.path)?;
    let (agent, in_use) = service.agent(&id, Use::Files).await?;
    let part = headers.get(header::RANGE).and_then(range::parse);
    let part = match part {
        None => Part::WHOLE,
        Some(range) => {
            // A read of zero bytes: it returns the length of the file, with links followed.
            let (stat, _) = agent.read_file(&path, 0, Some(0)).await?;
            match range.of(stat.size) {
                Some(part) => part,
                None => return Ok(unsatisfiable(&query.path, stat.size)),
            }
        }
    };
    let (stat, contents) = agent.read_file(&path, part.from, part.length).await?;
    let length = stat.size.saturating_sub(part.from).min(part.length.unwrap_or(u64::MAX));
    // Files that the kernel generates when they are read report a size of zero.
    let known = stat.size > 0 && stat.kind == FileKind::File;
    let left = if known { length } else { u64::MAX };
    let mut response = dorm_http::contents(contents, left, in_use).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if known {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    if part.length.is_some() {
        let shown = format!("bytes {}-{}/{}", part.from, part.from + length.saturating_sub(1), stat.size);
        headers.extend(HeaderValue::from_str(&shown).ok().map(|value| (header::CONTENT_RANGE, value)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// How to write a file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteQuery {
    /// Absolute path in the sandbox.
    path: String,
    /// Permission bits in octal. Default: those of the file that is replaced, or 0644.
    mode: Option<String>,
    /// Owner: a name, a number, or `UID:GID`. Default: that of the file that is replaced, or root.
    user: Option<String>,
    /// Create missing parent directories. Default: true.
    parents: Option<bool>,
    /// Write into the existing file, which is emptied first and keeps its inode, mode and owner.
    /// Default: false, unless `append` or `offset` is given.
    in_place: Option<bool>,
    /// Append to the existing file, in place. Default: false.
    append: Option<bool>,
    /// Write in place from this byte on, and keep the rest of the file.
    offset: Option<u64>,
}

impl WriteQuery {
    /// Where to write in place; `None` for an atomic replacement.
    fn place(&self) -> Result<Option<WriteAt>, ApiError> {
        let place = match (self.append, self.offset) {
            (Some(true), Some(_)) => {
                return Err(ApiError::invalid("append and offset exclude each other", "give one of them"));
            }
            (Some(true), None) => Some(WriteAt::End),
            (_, Some(offset)) => Some(WriteAt::Offset(offset)),
            (_, None) => None,
        };
        match (self.in_place, place) {
            (Some(false), Some(_)) => {
                let message = "append and offset write in place, and in_place is false";
                Err(ApiError::invalid(message, "omit in_place"))
            }
            (Some(true), None) => Ok(Some(WriteAt::Emptied)),
            (_, place) => Ok(place),
        }
    }
}

/// Write a file
///
/// The body is the new contents. The file is replaced atomically: readers see the old or the new
/// contents, and an incomplete request changes nothing. With `in_place`, `append` or `offset`, the
/// body is written into the existing file as it arrives: the file keeps its inode, and an
/// incomplete request leaves a part.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", operation_id = "writeFile", tag = "files",
    request_body(content = wire::Binary, content_type = "application/octet-stream"),
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), WriteQuery),
    responses(
        (status = 200, description = "The file after the write.", body = wire::FileStat),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn write(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<WriteQuery>,
    body: Body,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path(&query.path)?;
    let place = query.place()?;
    let options = WriteOptions {
        mode: query.mode.as_deref().map(convert::parse_mode).transpose()?,
        owner: query.user.as_deref().map(user).transpose()?,
        parents: parents(query.parents),
    };
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let body = body.into_data_stream();
    let stat = match place {
        Some(at) => agent.write_in_place(&path, at, options, body).await?,
        None => agent.write_file(&path, options, body).await?,
    };
    Ok(axum::Json(convert::stat(&path, stat)))
}

const fn parents(wanted: Option<bool>) -> Parents {
    match wanted {
        Some(true) | None => Parents::Create,
        Some(false) => Parents::Require,
    }
}

/// Parameters of a removal.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// Absolute path in the sandbox.
    path: String,
    /// Delete a directory with everything below it. Default: false.
    recursive: Option<bool>,
}

/// Delete a file or directory
///
/// Deletes a symbolic link itself, not its target.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", operation_id = "deleteFile", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), RemoveQuery),
    responses(
        (status = 204, description = "The file is deleted."),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn remove(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<RemoveQuery>,
) -> Result<StatusCode, ApiError> {
    let path = guest_path(&query.path)?;
    let scope = if query.recursive == Some(true) { RemoveScope::Tree } else { RemoveScope::Single };
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    agent.remove(&path, scope).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get the metadata of a file
///
/// Reports a symbolic link itself, not its target.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/stat", operation_id = "statFile", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), ReadQuery),
    responses(
        (status = 200, description = "The metadata of the file.", body = wire::FileStat),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn stat(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<ReadQuery>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path(&query.path)?;
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let stat = agent.stat(&path).await?;
    Ok(axum::Json(convert::stat(&path, stat)))
}

/// Parameters of a listing.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Absolute path of the directory.
    path: String,
    /// How many levels to list. Default 1: only the entries of the directory itself.
    depth: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 1000. A page with long names may have
    /// fewer items although `next` is set.
    limit: Option<usize>,
}

/// List a directory
///
/// Ordered by name. With a depth above 1, each directory comes before its contents.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/list", operation_id = "listFiles", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), ListQuery),
    responses(
        (status = 200, description = "One page of entries.", body = wire::FileList),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn list(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::FileList>, ApiError> {
    let path = guest_path(&query.path)?;
    let depth = query.depth.unwrap_or(1);
    if depth == 0 {
        return Err(ApiError::invalid(
            "depth is 0: it must be 1 or more",
            "use GET /v1/sandboxes/{id}/files/stat for the directory itself",
        ));
    }
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let after = query.after.as_deref().map(path_in_list).transpose()?;
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let page = agent.list(&path, depth, after.as_ref(), limit).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| place_in_list(&last.path));
    Ok(axum::Json(wire::FileList { entries: page.items.into_iter().map(convert::entry).collect(), next }))
}

/// Create a directory
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/mkdir", operation_id = "createDirectory", tag = "files",
    request_body = wire::MakeDirectory,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The directory.", body = wire::FileStat),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn mkdir(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::MakeDirectory>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path_of("path", &asked.path)?;
    let owner = asked.user.as_deref().map(user).transpose()?;
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let stat = match (asked.exclusive, parents(asked.parents)) {
        // Without parents, an existing path is refused in any case.
        (Some(true), Parents::Create) => agent.make_new_directory(&path, owner).await?,
        (_, parents) => agent.make_directory(&path, parents, owner).await?,
    };
    Ok(axum::Json(convert::stat(&path, stat)))
}

/// Rename a file or directory
///
/// Replaces an existing file of the new name. Created parent directories are removed again if the
/// file cannot be renamed.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/rename", operation_id = "renameFile", tag = "files",
    request_body = wire::Rename,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The file under its new name.", body = wire::FileStat),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn rename(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::Rename>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let from = guest_path_of("from", &asked.from)?;
    let to = guest_path_of("to", &asked.to)?;
    let owner = asked.user.as_deref().map(user).transpose()?;
    if owner.is_some() && asked.parents != Some(true) {
        return Err(ApiError::invalid("user is the owner of created parents, and parents is not true", "omit user"));
    }
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let stat = match asked.parents {
        Some(true) => agent.move_to(&from, &to, owner).await?,
        Some(false) | None => agent.rename(&from, &to).await?,
    };
    Ok(axum::Json(convert::stat(&to, stat)))
}

/// Parameters of a watch.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchQuery {
    /// Absolute path of the directory.
    path: String,
    /// Also watch everything below the entries of the directory. Default: false.
    recursive: Option<bool>,
}

/// Watch a directory for changes
///
/// Sends every change that happens after the response has started as a server-sent event `change`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/watch", operation_id = "watchFiles", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), WatchQuery),
    responses(
        (status = 200, description = "The changes as server-sent events.",
            content_type = "text/event-stream", body = wire::WatchEvent),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn watch(
    ForRequest(service): ForRequest,
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<WatchQuery>,
) -> Result<Response, ApiError> {
    let path = guest_path(&query.path)?;
    let scope = if query.recursive == Some(true) { Scope::Below } else { Scope::Here };
    let (agent, in_use) = service.agent(&id, Use::Watch).await?;
    let changes = agent.watch(&path, scope).await?;
    let events = stream::unfold((Some(changes), in_use), |(changes, in_use)| async move {
        let mut changes = changes?;
        match changes.next().await? {
            Ok(change) => Some((sse::event("change", &wire::WatchEvent::of(change)), (Some(changes), in_use))),
            Err(error) => Some((error::last_event(error.into()), (None, in_use))),
        }
    });
    Ok(sse::answer(events.take_until(api.life.stop.cancelled_owned())))
}

/// The response when a file has no such part.
fn unsatisfiable(path: &str, size: u64) -> Response {
    let message = format!("'{path}' is {size} bytes long and has no such range");
    let error =
        ApiError::invalid(message, "request a range within the file").with_status(StatusCode::RANGE_NOT_SATISFIABLE);
    let mut response = error.into_response();
    let shown = HeaderValue::from_str(&format!("bytes */{size}")).ok();
    response.headers_mut().extend(shown.map(|value| (header::CONTENT_RANGE, value)));
    response
}
