//! Searches for files in a sandbox, and for lines in them.

use axum::response::Response;
use dorm_agent_client::{BinaryFiles, Case, LinePattern, SearchLimits, SearchSpec, Syntax};
use dorm_api_types as wire;
use dorm_http::bodies::Share;
use dorm_service::Use;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::collected;
use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, Sandbox, guest_path, milliseconds};

const RESULTS: u32 = 1000;
const RESULTS_MAX: u32 = 10_000;
const ENTRIES: u64 = 1_000_000;
const BYTES: u64 = 1 << 30;
const SECONDS: f64 = 30.0;
/// The longest time of a search: longer than most clients wait.
const MILLISECONDS_MAX: u64 = 3_600_000;

/// Parameters of a search for files.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FindQuery {
    /// Absolute path of the directory.
    path: String,
    /// Glob for the name, such as `*.rs` or `{a,b}?`. A pattern with a `/` is compared with the
    /// path below the directory; `**` stands for any number of directories. Default: every name.
    name: Option<String>,
    /// Only files of this type.
    kind: Option<wire::FileKind>,
    /// Ignore the case of letters. Default: false.
    ignore_case: Option<bool>,
    /// Levels of directories to search; 1 searches only the entries of the directory. Default: all.
    depth: Option<u32>,
    /// Largest number of files to return, 1 to 10,000. Default 1,000.
    limit: Option<u32>,
    /// Largest number of files and directories to look at. Default 1,000,000.
    max_entries: Option<u64>,
    /// Longest time of the search, at most 3,600. Default 30.
    timeout_secs: Option<f64>,
}

/// Find files
///
/// Searches a directory and everything below it, without following symbolic links. A directory
/// comes before its contents, and up to 1,024 entries of a directory are ordered by name. The
/// search ends at the first limit that it reaches; `search.truncated_by` says at which. It also
/// ends when the client closes the connection.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/find", operation_id = "findFiles", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), FindQuery),
    responses(
        (status = 200, description = "The files.", body = wire::FoundFiles),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn find(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<FindQuery>,
) -> Result<Response, ApiError> {
    let spec = SearchSpec {
        path: guest_path(&query.path)?,
        depth: depth(query.depth)?,
        name: query.name,
        kind: query.kind.map(Convert::convert),
        lines: None,
        case: case(query.ignore_case),
        limits: limits(query.limit, query.max_entries, None, query.timeout_secs)?,
    };
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let found = agent.find_files(spec).await?;
    let files = found.entries.into_iter().map(convert::entry).collect();
    collected::json(&wire::FoundFiles { files, search: found.summary.convert() }, Share::of_response())
}

/// Parameters of a search for lines.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GrepQuery {
    /// Absolute path of the directory, or of one file.
    path: String,
    /// Regular expression in the syntax of the Rust crate `regex`, without look-around and back
    /// references. It is compared with each line.
    pattern: String,
    /// The pattern is the text itself. Default: false.
    literal: Option<bool>,
    /// Ignore the case of letters, also in `name`. Default: false.
    ignore_case: Option<bool>,
    /// Glob for the name of the files to search, as for `/files/find`. Default: every file.
    name: Option<String>,
    /// Also search files with a zero byte among their first 8,192 bytes. Default: false.
    binary: Option<bool>,
    /// Levels of directories to search; 1 searches only the files in the directory. Default: all.
    depth: Option<u32>,
    /// Largest number of lines to return, 1 to 10,000. Default 1,000.
    limit: Option<u32>,
    /// Largest number of files and directories to look at. Default 1,000,000.
    max_entries: Option<u64>,
    /// Largest number of bytes to read from files. Default 1 GiB.
    max_bytes: Option<u64>,
    /// Longest time of the search, at most 3,600. Default 30.
    timeout_secs: Option<f64>,
}

/// Find lines in files
///
/// Searches the regular files in a directory and everything below it, without following symbolic
/// links. Only the beginning of a line longer than
/// 1 MiB is searched. The search ends at the first limit
/// that it reaches; `search.truncated_by` says at which. It also ends when the client closes the
/// connection.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/grep", operation_id = "findLines", tag = "files",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), GrepQuery),
    responses(
        (status = 200, description = "The lines.", body = wire::FoundLines),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn grep(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    Query(query): Query<GrepQuery>,
) -> Result<Response, ApiError> {
    let lines = LinePattern {
        pattern: query.pattern,
        syntax: if query.literal == Some(true) { Syntax::Literal } else { Syntax::Regex },
        binary: if query.binary == Some(true) { BinaryFiles::Search } else { BinaryFiles::Skip },
    };
    let spec = SearchSpec {
        path: guest_path(&query.path)?,
        depth: depth(query.depth)?,
        name: query.name,
        kind: None,
        lines: Some(lines),
        case: case(query.ignore_case),
        limits: limits(query.limit, query.max_entries, query.max_bytes, query.timeout_secs)?,
    };
    let (agent, _in_use) = service.agent(&id, Use::Files).await?;
    let found = agent.find_lines(spec).await?;
    let lines = found.lines.into_iter().map(Convert::convert).collect();
    collected::json(&wire::FoundLines { lines, search: found.summary.convert() }, Share::of_response())
}

fn case(is_ignored: Option<bool>) -> Case {
    if is_ignored == Some(true) { Case::Ignored } else { Case::Counts }
}

fn depth(asked: Option<u32>) -> Result<Option<u32>, ApiError> {
    match asked {
        Some(0) => Err(ApiError::invalid("depth is 0: it must be at least 1", "leave it out to search all levels")),
        depth => Ok(depth),
    }
}

fn limits(
    results: Option<u32>,
    entries: Option<u64>,
    bytes: Option<u64>,
    seconds: Option<f64>,
) -> Result<SearchLimits, ApiError> {
    let results = results.unwrap_or(RESULTS);
    if !(1..=RESULTS_MAX).contains(&results) {
        let message = format!("limit is {results}: it must be from 1 to {RESULTS_MAX}");
        return Err(ApiError::invalid(message, "narrow the search if there are more results"));
    }
    let time_ms = milliseconds("timeout_secs", seconds.unwrap_or(SECONDS), MILLISECONDS_MAX)?;
    Ok(SearchLimits { results, entries: entries.unwrap_or(ENTRIES), bytes: bytes.unwrap_or(BYTES), time_ms })
}
