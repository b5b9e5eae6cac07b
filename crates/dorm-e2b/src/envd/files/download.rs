//! Downloads.

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_agent_client::{FileStat, GuestPath};
use dorm_http::range::{self, Part};
use dorm_service::Use;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::access::Call;
use super::super::fault::{Code, Failed, Fault};
use super::super::path;
use super::{parameter, person};

/// Reads a file.
pub(super) async fn download(call: &Call, request: &Parts) -> Result<Response, Failed> {
    let given = parameter(&request.uri, "path")?.unwrap_or_default();
    let headers = &request.headers;
    if !accepts_identity(headers) {
        let response = Fault::invalid("no acceptable encoding: the file is sent as it is").into_http();
        return Ok((StatusCode::NOT_ACCEPTABLE, response.into_body()).into_response());
    }
    let (agent, in_use) = call.agent(Use::Files).await?;
    let path = person(call, &request.uri, &agent).await?.path(&given)?;
    // A read of zero bytes follows links and tells length and time.
    let (stat, _) = agent.read_file(&path, 0, Some(0)).await.map_err(|error| named(error.into(), &given))?;
    if let Some(answer) = not_changed(headers, &stat) {
        return Ok(answered(&path, &stat, answer));
    }
    let part = match asked_range(headers, &stat) {
        None => Part::WHOLE,
        Some(range) => match range.of(stat.size) {
            Some(part) => part,
            None => return Ok(unsatisfiable(&given, stat.size)),
        },
    };
    let is_head = request.method == Method::HEAD;
    let (stat, mut contents) = agent.read_file(&path, part.from, part.length).await?;
    let length = stat.size.saturating_sub(part.from).min(part.length.unwrap_or(u64::MAX));
    // Files that the kernel generates when they are read report a size of zero.
    let (first, length) = match length {
        0 => match contents.next().await.transpose()? {
            Some(first) => (Some(first), None),
            None => (None, Some(0)),
        },
        length => (None, Some(length)),
    };
    let body = if is_head || length == Some(0) {
        Body::empty()
    } else {
        dorm_http::contents(stream::iter(first.map(Ok)).chain(contents), length.unwrap_or(u64::MAX), in_use)
    };
    let mut response = answered(&path, &stat, StatusCode::OK);
    *response.body_mut() = body;
    let headers = response.headers_mut();
    headers.extend(length.map(|length| (header::CONTENT_LENGTH, HeaderValue::from(length))));
    if let (Some(_), Some(length)) = (part.length, length) {
        let shown = format!("bytes {}-{}/{}", part.from, part.from + length.saturating_sub(1), stat.size);
        headers.extend(HeaderValue::from_str(&shown).ok().map(|value| (header::CONTENT_RANGE, value)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Names a missing path as the client has named it.
fn named(failed: Failed, given: &str) -> Failed {
    match failed {
        Failed::Refused(fault) if fault.code == Code::NotFound => {
            Fault::new(Code::NotFound, format!("path '{given}' does not exist")).into()
        }
        failed => failed,
    }
}

/// Whether the client accepts a response that is not compressed.
fn accepts_identity(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    let refused = |name: &str| {
        let mut named = all.iter().filter_map(|one| {
            let (coding, parameters) = one.split_once(';').unwrap_or((one, ""));
            let weight = parameters.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
            (coding.trim().eq_ignore_ascii_case(name)).then_some(weight == Some(0.0))
        });
        named.next()
    };
    match (refused("identity"), refused("*")) {
        (Some(is_refused), _) => !is_refused,
        (None, Some(is_refused)) => !is_refused,
        (None, None) => true,
    }
}

/// The status of a request whose conditions say that the file need not be sent.
fn not_changed(headers: &HeaderMap, stat: &FileStat) -> Option<StatusCode> {
    // Dates in headers have no fractions of seconds.
    let modified = stat.modified_unix_ms.div_euclid(1000);
    let date = |name| headers.get(name).and_then(parse_date);
    let tags = |name| headers.get(name).map(|value| has_tag(value, &tag(stat)));
    match (tags(header::IF_MATCH), date(header::IF_UNMODIFIED_SINCE)) {
        (Some(false), _) => return Some(StatusCode::PRECONDITION_FAILED),
        (None, Some(since)) if modified > since => return Some(StatusCode::PRECONDITION_FAILED),
        _ => {}
    }
    match (tags(header::IF_NONE_MATCH), date(header::IF_MODIFIED_SINCE)) {
        (Some(true), _) => Some(StatusCode::NOT_MODIFIED),
        (None, Some(since)) if modified <= since => Some(StatusCode::NOT_MODIFIED),
        _ => None,
    }
}

/// The range that a request asks for, unless the file has changed since the client read it first.
fn asked_range(headers: &HeaderMap, stat: &FileStat) -> Option<range::Range> {
    let range = headers.get(header::RANGE).and_then(range::parse)?;
    // The length of a generated file is not known.
    let is_same = match headers.get(header::IF_RANGE) {
        None => true,
        Some(value) if value.as_bytes() == tag(stat).as_bytes() => true,
        Some(value) => parse_date(value) == Some(stat.modified_unix_ms.div_euclid(1000)),
    };
    (is_same && stat.size > 0).then_some(range)
}

/// The entity tag of a file with this length and time.
fn tag(stat: &FileStat) -> String {
    format!("\"{:x}-{:x}\"", stat.modified_unix_ms, stat.size)
}

fn has_tag(value: &HeaderValue, tag: &str) -> bool {
    let text = value.to_str().unwrap_or_default();
    text.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

fn parse_date(value: &HeaderValue) -> Option<i64> {
    DateTimeParser::new().parse_timestamp(value.to_str().ok()?).ok().map(Timestamp::as_second)
}

/// A response without a body.
fn answered(path: &GuestPath, stat: &FileStat, status: StatusCode) -> Response {
    let mut response = status.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let time = Timestamp::from_millisecond(stat.modified_unix_ms).ok();
    let time = time.and_then(|time| DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok());
    let values = [
        (header::ETAG, Some(tag(stat))),
        (header::LAST_MODIFIED, time),
        (header::CONTENT_DISPOSITION, Some(disposition(path::name(&path.to_text())))),
    ];
    headers.extend(values.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value?).ok()?))));
    response
}

/// The header that suggests a name for the file.
fn disposition(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match is_plain {
        true => format!("inline; filename={name}"),
        false => format!("inline; filename*=utf-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC)),
    }
}

fn unsatisfiable(path: &str, size: u64) -> Response {
    let fault = Fault::invalid(format!("path '{path}' has {size} bytes and no such range"));
    let mut response = (StatusCode::RANGE_NOT_SATISFIABLE, fault.into_http().into_body()).into_response();
    let shown = HeaderValue::from_str(&format!("bytes */{size}")).ok();
    response.headers_mut().extend(shown.map(|value| (header::CONTENT_RANGE, value)));
    response
}

#[cfg(test)]
mod tests {
    use dorm_agent_client::FileKind;

    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    fn stat() -> FileStat {
        let (owner, group, link) = (None, None, None);
        let (kind, modified_unix_ms) = (FileKind::File, 784_111_777_500);
        FileStat { kind, size: 10, mode: 0o644, uid: 0, gid: 0, owner, group, modified_unix_ms, link }
    }

    #[test]
    fn identity_is_acceptable_unless_it_is_refused() {
        for (value, is_accepted) in [
            ("", true),
            ("gzip, deflate", true),
            ("gzip;q=1, identity;q=0", false),
            ("*;q=0", false),
            ("gzip, *; q=0.0", false),
            ("identity;q=0.5, *;q=0", true),
        ] {
            assert_eq!(accepts_identity(&headers(header::ACCEPT_ENCODING, value)), is_accepted, "{value}");
        }
    }

    #[test]
    fn a_file_that_has_not_changed_is_not_sent_again() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
        const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
        let checked = |name, value| not_changed(&headers(name, value), &stat());
        for (since, answer) in [(DATE, Some(304)), (LATER, Some(304)), (EARLIER, None), ("soon", None)] {
            let found = checked(header::IF_MODIFIED_SINCE, since).map(|status| status.as_u16());
            assert_eq!(found, answer, "{since}");
        }
        assert_eq!(checked(header::IF_UNMODIFIED_SINCE, EARLIER), Some(StatusCode::PRECONDITION_FAILED));
        assert_eq!(checked(header::IF_UNMODIFIED_SINCE, DATE), None);
        assert_eq!(checked(header::IF_NONE_MATCH, "*"), Some(StatusCode::NOT_MODIFIED));
        assert_eq!(checked(header::IF_NONE_MATCH, "\"x\""), None);
        assert_eq!(checked(header::IF_MATCH, "\"x\""), Some(StatusCode::PRECONDITION_FAILED));
        let sent = answered(&"/a".try_into().unwrap(), &stat(), StatusCode::OK);
        assert_eq!(sent.headers()[header::LAST_MODIFIED], DATE);
    }

    #[test]
    fn the_rest_of_a_file_is_sent_only_if_it_is_the_same_file() {
        let mut asked = headers(header::RANGE, "bytes=5-");
        assert!(asked_range(&asked, &stat()).is_some());
        for (value, is_sent) in [("Sun, 06 Nov 1994 08:49:37 GMT", true), ("Sun, 06 Nov 1994 08:49:38 GMT", false)] {
            asked.insert(header::IF_RANGE, HeaderValue::from_static(value));
            assert_eq!(asked_range(&asked, &stat()).is_some(), is_sent, "{value}");
        }
        asked.insert(header::IF_RANGE, HeaderValue::from_str(&tag(&stat())).unwrap());
        assert!(asked_range(&asked, &stat()).is_some());
        assert!(asked_range(&asked, &FileStat { size: 0, ..stat() }).is_none());
    }

    #[test]
    fn names_of_files_are_suggested_in_ascii() {
        assert_eq!(disposition("a-1.txt"), "inline; filename=a-1.txt");
        assert_eq!(disposition("ä \"b\""), "inline; filename*=utf-8''%C3%A4%20%22b%22");
    }
}
