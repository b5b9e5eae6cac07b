//! Files inside a sandbox. Contents are passed on as they come, so that a file of any size needs the same memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use dorm_agent_client::{FileKind, FileStream, Parents, RemoveScope, Scope, WriteOptions};
use dorm_service::{InUse, Use};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use super::range::{self, Part};
use crate::error::ApiError;
use crate::extract::{
    Json, PAGE_MAX, Query, Sandbox, guest_path, guest_path_of, page_limit_or, path_in_list, place_in_list, user,
};
use crate::routes::Api;
use crate::{convert, sse, wire};

/// Which file to read.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadQuery {
    /// Its absolute path.
    path: String,
}

/// Reads a file, or a part of it. Links are followed. The answer breaks off when the rest cannot be read.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", operation_id = "readFile", tag = "files",
    params(
        ("id" = String, Path, description = "id, or name of a living sandbox"),
        ReadQuery,
        ("Range" = Option<String>, Header, description = "`bytes=FROM-`, `bytes=FROM-TO` or `bytes=-LAST`"),
    ),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, content_type = "application/octet-stream", body = Vec<u8>, description = "the part asked for"),
        (status = 416, body = wire::ErrorAnswer, description = "the file has no such part"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn read(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    headers: HeaderMap,
    Query(query): Query<ReadQuery>,
) -> Result<Response, ApiError> {
    let path = guest_path(&query.path)?;
    let (agent, in_use) = api.service.agent(&id, Use::Files).await?;
    let part = headers.get(header::RANGE).and_then(range::parse);
    let part = match part {
        None => Part::WHOLE,
        Some(range) => {
            // Of no bytes: how long it is, with links followed.
            let (stat, _) = agent.read_file(&path, 0, Some(0)).await?;
            match range.of(stat.size) {
                Some(part) => part,
                None => return Ok(range::unsatisfiable(&query.path, stat.size)),
            }
        }
    };
    let (stat, contents) = agent.read_file(&path, part.from, part.length).await?;
    let length = stat.size.saturating_sub(part.from).min(part.length.unwrap_or(u64::MAX));
    // Files that the kernel makes up as they are read say that they are empty.
    let known = stat.size > 0 && stat.kind == FileKind::File;
    let left = if known { length } else { u64::MAX };
    let mut response = Body::from_stream(Contents { contents, left, _in_use: in_use }).into_response();
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

/// A file's contents: no more than was announced, should it grow meanwhile; an error, should it shrink.
struct Contents {
    contents: FileStream,
    left: u64,
    _in_use: InUse,
}

impl Stream for Contents {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let chunk = match ready!(Pin::new(&mut this.contents).poll_next(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            Some(Ok(mut chunk)) => {
                chunk.truncate(usize::try_from(this.left).unwrap_or(usize::MAX));
                chunk
            }
        };
        this.left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(chunk)))
    }
}

/// How to write a file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteQuery {
    /// Its absolute path.
    path: String,
    /// Its permission bits in octal. Default: those of the file it replaces, or 0644.
    mode: Option<String>,
    /// Its owner: a name, a number, or `UID:GID`. Default: that of the file it replaces, or root.
    user: Option<String>,
    /// Whether missing directories are made. Default: yes.
    parents: Option<bool>,
}

/// Writes a file with the body as its contents. Whoever reads it sees the old file or the new one; when the body
/// breaks off, the old one stays.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", operation_id = "writeFile", tag = "files",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(("id" = String, Path, description = "id, or name of a living sandbox"), WriteQuery),
    responses(
        (status = 200, body = wire::FileStat),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn write(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<WriteQuery>,
    body: Body,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path(&query.path)?;
    let options = WriteOptions {
        mode: query.mode.as_deref().map(convert::parse_mode).transpose()?,
        owner: query.user.as_deref().map(user).transpose()?,
        parents: parents(query.parents),
    };
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    let stat = agent.write_file(&path, options, body.into_data_stream()).await?;
    Ok(axum::Json(convert::stat(&path, stat)))
}

const fn parents(wanted: Option<bool>) -> Parents {
    match wanted {
        Some(true) | None => Parents::Create,
        Some(false) => Parents::Require,
    }
}

/// What to remove.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// Its absolute path.
    path: String,
    /// Whether a directory goes with all below it. Default: no.
    recursive: Option<bool>,
}

/// Removes a file, link or directory. A link's target is left alone.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", operation_id = "deleteFile", tag = "files",
    params(("id" = String, Path, description = "id, or name of a living sandbox"), RemoveQuery),
    responses(
        (status = 204, description = "it is gone"),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn remove(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<RemoveQuery>,
) -> Result<StatusCode, ApiError> {
    let path = guest_path(&query.path)?;
    let scope = if query.recursive == Some(true) { RemoveScope::Tree } else { RemoveScope::Single };
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    agent.remove(&path, scope).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is known of a file without reading it. A link is reported as itself.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/stat", operation_id = "statFile", tag = "files",
    params(("id" = String, Path, description = "id, or name of a living sandbox"), ReadQuery),
    responses(
        (status = 200, body = wire::FileStat),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn stat(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<ReadQuery>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path(&query.path)?;
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    let stat = agent.stat(&path).await?;
    Ok(axum::Json(convert::stat(&path, stat)))
}

/// What to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// The directory's absolute path.
    path: String,
    /// How many levels of it. Default 1: its own entries.
    depth: Option<u32>,
    /// Only what comes after this: `next` of the page before.
    after: Option<String>,
    /// At most so many entries, 1 to 1000. Default 1000. A page of long names may have fewer and still have a `next`.
    limit: Option<usize>,
}

/// Lists a directory, a directory before what is in it, by name, page by page.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/list", operation_id = "listFiles", tag = "files",
    params(("id" = String, Path, description = "id, or name of a living sandbox"), ListQuery),
    responses(
        (status = 200, body = wire::FileList),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn list(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<wire::FileList>, ApiError> {
    let path = guest_path(&query.path)?;
    let depth = query.depth.unwrap_or(1);
    if depth == 0 {
        return Err(ApiError::invalid("depth is 0: it must be 1 or more", "ask for the stat of the directory itself"));
    }
    let limit = page_limit_or(query.limit, PAGE_MAX)?;
    let after = query.after.as_deref().map(path_in_list).transpose()?;
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    let page = agent.list(&path, depth, after.as_ref(), limit).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| place_in_list(&last.path));
    Ok(axum::Json(wire::FileList { entries: page.items.into_iter().map(convert::entry).collect(), next }))
}

/// Makes a directory.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/mkdir", operation_id = "createDirectory", tag = "files",
    request_body = wire::MakeDirectory,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::FileStat),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn mkdir(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::MakeDirectory>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let path = guest_path_of("path", &asked.path)?;
    let owner = asked.user.as_deref().map(user).transpose()?;
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    let stat = agent.make_directory(&path, parents(asked.parents), owner).await?;
    Ok(axum::Json(convert::stat(&path, stat)))
}

/// Renames a file or directory, replacing a file that is there; answers what stands under the new name.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/rename", operation_id = "renameFile", tag = "files",
    request_body = wire::Rename,
    params(("id" = String, Path, description = "id, or name of a living sandbox")),
    responses(
        (status = 200, body = wire::FileStat),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn rename(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Json(asked): Json<wire::Rename>,
) -> Result<axum::Json<wire::FileStat>, ApiError> {
    let from = guest_path_of("from", &asked.from)?;
    let to = guest_path_of("to", &asked.to)?;
    let (agent, _in_use) = api.service.agent(&id, Use::Files).await?;
    let stat = agent.rename(&from, &to).await?;
    Ok(axum::Json(convert::stat(&to, stat)))
}

/// What to watch.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchQuery {
    /// The directory's absolute path.
    path: String,
    /// Whether what is below its own entries is watched, too. Default: no.
    recursive: Option<bool>,
}

/// Watches a directory: everything that happens after the answer has begun comes as the event `change`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/watch", operation_id = "watchFiles", tag = "files",
    params(("id" = String, Path, description = "id, or name of a living sandbox"), WatchQuery),
    responses(
        (status = 200, description = "server-sent events", content_type = "text/event-stream", body = wire::WatchEvent),
        (status = "default", body = wire::ErrorAnswer, description = "an error"),
    ))]
pub(crate) async fn watch(
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(query): Query<WatchQuery>,
) -> Result<Response, ApiError> {
    let path = guest_path(&query.path)?;
    let scope = if query.recursive == Some(true) { Scope::Below } else { Scope::Here };
    let (agent, in_use) = api.service.agent(&id, Use::Watch).await?;
    let changes = agent.watch(&path, scope).await?;
    let events = stream::unfold((Some(changes), in_use), |(changes, in_use)| async move {
        let mut changes = changes?;
        match changes.next().await? {
            Ok(change) => Some((sse::event("change", &wire::WatchEvent::from(change)), (Some(changes), in_use))),
            Err(error) => Some((sse::failure(error.into()), (None, in_use))),
        }
    });
    Ok(sse::answer(events.take_until(api.life.stop.cancelled_owned())))
}
