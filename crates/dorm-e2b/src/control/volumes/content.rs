//! The contents of a volume: `/volumecontent/{volume}/dir`, `file` and `path`.
//!
//! The token of the volume admits a request, whatever key it carries. Errors have another form than
//! in the rest of the control API: their `code` is a text.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use dorm_http::{Standing, only};
use dorm_lifecycle::VolumeId;
use dorm_service::{
    Code, DEPTH_MAX, EntryChange, EntryPath, IfExists, NewEntry, Ownership, Parents, Service, ServiceError,
};
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

use super::wire::{Change, Entry};
use super::{upload, volume_id};
use crate::door::{self, E2b};
use crate::error::Refusal;
use crate::text::{self, number, parameter};
use crate::tokens::{self, VolumeAccess};

/// The permissions of entries for which a request names none: every user of a sandbox can change
/// them.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// The largest permissions, with the set-ID bits and the sticky bit.
const MODE_MAX: u32 = 0o7777;
/// The largest id of a user or group.
const ID_MAX: u32 = 65_535;
/// The bytes that are read from a file at a time.
const PIECE_BYTES: usize = 256 << 10;

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
}

/// Answers a request for the contents of a volume; `rest` is the path below `volumecontent`.
pub(in crate::control) async fn answer(door: &E2b, rest: &[&str], request: Request) -> Response {
    match answered(door, rest, request).await {
        Ok(response) => response,
        Err(refusal) => response(&refusal),
    }
}

async fn answered(door: &E2b, rest: &[&str], request: Request) -> Result<Response, Refusal> {
    let [volume, part] = rest else { return Err(unknown(&request)) };
    let (id, access) = admit(door, volume, request.headers())?;
    door::stand(&request, Standing::Known);
    if access == VolumeAccess::Read && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let message = "this token only reads: get the volume with an API key that is not read-only";
        return Err(Refusal::new(StatusCode::FORBIDDEN, message));
    }
    let service = door.access.daemon.of_volume(&id).await.map_err(|error| super::refused(volume, error))?;
    let uri = request.uri().clone();
    match (request.method(), *part) {
        (&Method::GET, "path") => {
            let entry = service.stat_volume_entry(&id, &path(&uri)?).await.map_err(refused)?;
            Ok(Json(Entry::from(entry)).into_response())
        }
        (&Method::PATCH, "path") => change(&service, &id, &path(&uri)?, request).await,
        (&Method::DELETE, "path") => {
            service.remove_volume_entry(&id, &path(&uri)?).await.map_err(refused)?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::GET, "dir") => {
            let entries = service.list_volume_tree(&id, &path(&uri)?, depth(&uri)?).await.map_err(refused)?;
            Ok(Json(entries.into_iter().map(Entry::from).collect::<Vec<_>>()).into_response())
        }
        (&Method::POST, "dir") => {
            let made = service.make_volume_directory(&id, &path(&uri)?, new_directory(&uri)?).await;
            Ok((StatusCode::CREATED, Json(Entry::from(made.map_err(refused)?))).into_response())
        }
        (&Method::GET, "file") => read(&service, &id, &path(&uri)?).await,
        (&Method::PUT, "file") => {
            let (path, new) = (path(&uri)?, new_file(&uri)?);
            let written = upload::write(&service, &id, &path, new, request.into_body()).await?;
            Ok((StatusCode::CREATED, Json(Entry::from(written))).into_response())
        }
        _ => Err(unknown(&request)),
    }
}

/// The volume that a request names, and the access that its token gives. Without the token it is
/// not told whether the volume exists.
fn admit(door: &E2b, volume: &str, headers: &HeaderMap) -> Result<(VolumeId, VolumeAccess), Refusal> {
    let unauthorized = || {
        let message = "Invalid volume token: use the one of `Volume.create` or `Volume.connect`";
        Refusal::new(StatusCode::UNAUTHORIZED, message)
    };
    let presented = only(headers, &AUTHORIZATION)?.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let id = volume_id(volume).map_err(|_| unauthorized())?;
    let presented = presented.ok_or_else(unauthorized)?;
    let access = tokens::volume_access(&door.access.daemon, &id, presented.as_bytes()).ok_or_else(unauthorized)?;
    Ok((id, access))
}

async fn change(service: &Service, id: &VolumeId, path: &EntryPath, request: Request) -> Result<Response, Refusal> {
    let Change { uid, gid, mode } = text::json(request).await?;
    let change = EntryChange {
        uid: uid.map(|uid| within("uid", uid, ID_MAX)).transpose()?,
        gid: gid.map(|gid| within("gid", gid, ID_MAX)).transpose()?,
        mode: mode.map(|mode| within("mode", mode, MODE_MAX)).transpose()?,
    };
    let entry = service.change_volume_entry(id, path, change).await.map_err(refused)?;
    Ok(Json(Entry::from(entry)).into_response())
}

async fn read(service: &Service, id: &VolumeId, path: &EntryPath) -> Result<Response, Refusal> {
    let (file, bytes, using) = service.read_volume_entry(id, path).await.map_err(refused)?;
    // A sandbox may add to the file as fast as it is read.
    let contents = tokio::fs::File::from_std(file).take(bytes);
    let contents = ReaderStream::with_capacity(contents, PIECE_BYTES);
    // The file is closed before the volume is released.
    let contents = contents.map(move |piece| {
        let _using = &using;
        piece
    });
    let mut response = Body::from_stream(contents).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

fn path(uri: &Uri) -> Result<EntryPath, Refusal> {
    let text = parameter(uri, "path")?.ok_or_else(|| Refusal::invalid("the parameter 'path' is missing"))?;
    text.parse().map_err(|error: dorm_service::BadPath| Refusal::invalid(error.to_string()))
}

fn depth(uri: &Uri) -> Result<u32, Refusal> {
    match number(uri, "depth")?.unwrap_or(1) {
        depth @ 0..=DEPTH_MAX => Ok(depth),
        depth => Err(Refusal::invalid(format!("depth is {depth}: it must be at most {DEPTH_MAX}"))),
    }
}

/// The directory that a request asks for.
fn new_directory(uri: &Uri) -> Result<NewEntry, Refusal> {
    let ownership = ownership(uri, DIRECTORY_MODE)?;
    Ok(match force(uri)?.unwrap_or(false) {
        true => NewEntry { ownership, parents: parents(ownership), if_exists: IfExists::Accept },
        false => NewEntry { ownership, parents: Parents::Required, if_exists: IfExists::Refuse },
    })
}

/// The file that a request asks for. A request that does not say whether to force it creates and
/// overwrites, as the clients promise for theirs; only one that says no is strict.
fn new_file(uri: &Uri) -> Result<NewEntry, Refusal> {
    let ownership = ownership(uri, FILE_MODE)?;
    Ok(match force(uri)?.unwrap_or(true) {
        true => NewEntry { ownership, parents: parents(ownership), if_exists: IfExists::Accept },
        false => NewEntry { ownership, parents: Parents::Required, if_exists: IfExists::Refuse },
    })
}

fn parents(ownership: Ownership) -> Parents {
    Parents::Created(Ownership { mode: DIRECTORY_MODE, ..ownership })
}

fn ownership(uri: &Uri, mode: u32) -> Result<Ownership, Refusal> {
    let asked = |name, default, most| within(name, number(uri, name)?.unwrap_or(default), most);
    Ok(Ownership { uid: asked("uid", 0, ID_MAX)?, gid: asked("gid", 0, ID_MAX)?, mode: asked("mode", mode, MODE_MAX)? })
}

fn within(name: &str, value: u32, most: u32) -> Result<u32, Refusal> {
    match value <= most {
        true => Ok(value),
        false => Err(Refusal::invalid(format!("{name} is {value}: it must be at most {most}"))),
    }
}

fn force(uri: &Uri) -> Result<Option<bool>, Refusal> {
    match parameter(uri, "force")?.as_deref() {
        None | Some("") => Ok(None),
        Some("true" | "True" | "1") => Ok(Some(true)),
        Some("false" | "False" | "0") => Ok(Some(false)),
        Some(other) => Err(Refusal::invalid(format!("force is '{other}': it must be true or false"))),
    }
}

fn unknown(request: &Request) -> Refusal {
    Refusal::not_found(format!("{} {} is not known here", request.method(), request.uri().path()))
}

/// The refusal for an error of the contents of a volume.
pub(super) fn refused(error: ServiceError) -> Refusal {
    match error.code() {
        // A repetition does not make room.
        Code::NoRoom => full(error.message()),
        _ => error.into(),
    }
}

/// 507: the volume has no room.
pub(super) fn full(message: String) -> Refusal {
    Refusal::new(StatusCode::INSUFFICIENT_STORAGE, message)
}

pub(super) fn is_full(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn response(refusal: &Refusal) -> Response {
    let code = match refusal.status() {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "path_not_found",
        StatusCode::CONFLICT => "path_already_exists",
        StatusCode::INSUFFICIENT_STORAGE => "no_space",
        status if status.is_client_error() => "invalid_request",
        _ => "internal_server_error",
    };
    let body = Json(ErrorBody { code, message: refusal.message() }).into_response();
    // The headers tell a client whether to try again.
    let (head, _) = refusal.clone().into_response().into_parts();
    Response::from_parts(head, body.into_body())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/volumecontent/x/file?{query}").parse().unwrap()
    }

    #[test]
    fn a_file_is_overwritten_unless_the_request_says_no_and_a_directory_only_if_it_says_yes() {
        let strict = |new: NewEntry| (new.parents == Parents::Required, new.if_exists == IfExists::Refuse);
        for (query, file, directory) in [("", false, true), ("force=true", false, false), ("force=false", true, true)] {
            assert_eq!(strict(new_file(&uri(query)).unwrap()), (file, file), "file: {query}");
            assert_eq!(strict(new_directory(&uri(query)).unwrap()), (directory, directory), "directory: {query}");
        }
    }

    #[test]
    fn owner_and_mode_are_numbers_that_a_guest_can_have() {
        let asked = new_file(&uri("uid=1000&gid=65535&mode=420")).unwrap().ownership;
        assert_eq!(asked, Ownership { uid: 1000, gid: 65_535, mode: 0o644 });
        for query in ["uid=65536", "gid=-1", "mode=4096", "mode=rw", "force=maybe"] {
            assert_eq!(new_file(&uri(query)).unwrap_err().status(), StatusCode::BAD_REQUEST, "{query}");
        }
        assert!(depth(&uri("depth=65")).is_err() && depth(&uri("depth=-1")).is_err());
        assert_eq!((depth(&uri("")).unwrap(), depth(&uri("depth=0")).unwrap()), (1, 0));
    }

    #[test]
    fn a_path_is_named_and_stays_on_the_volume() {
        assert_eq!(path(&uri("path=%2Fa%20b%2F..%2Fc")).unwrap().to_string(), "/c");
        for query in ["", "path=", "path=..%2Fx", "path=a%00b", "path=%ff"] {
            assert_eq!(path(&uri(query)).unwrap_err().status(), StatusCode::BAD_REQUEST, "{query}");
        }
    }
}
