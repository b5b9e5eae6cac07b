//! Texts of requests: paths, queries and JSON bodies.

use axum::extract::Request;
use axum::http::Uri;
use dorm_http::bodies;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::error::Refusal;

/// The longest JSON body of a request of the control API, in bytes.
const JSON_BYTES_MAX: usize = 4 << 20;

/// The segments of a path, each decoded: a slash that is encoded belongs to its segment.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Refusal> {
    let decoded = |segment: &str| {
        let text = percent_decode_str(segment).decode_utf8();
        text.map(String::from).map_err(|_| Refusal::invalid(format!("the path segment '{segment}' is not UTF-8")))
    };
    path.split('/').skip(1).map(decoded).collect()
}

/// The decoded value of a parameter of the query; the first one, if there are several.
pub(crate) fn parameter(uri: &Uri, name: &str) -> Result<Option<String>, Refusal> {
    let Some(query) = uri.query() else { return Ok(None) };
    let found = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let Some((_, value)) = found.into_iter().find(|(key, _)| form_decoded(key).as_deref() == Some(name)) else {
        return Ok(None);
    };
    form_decoded(value).map(Some).ok_or_else(|| Refusal::invalid(format!("the parameter '{name}' is not UTF-8")))
}

/// A parameter of the query that is a number.
pub(crate) fn number<T: std::str::FromStr>(uri: &Uri, name: &str) -> Result<Option<T>, Refusal> {
    let Some(text) = parameter(uri, name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Refusal::invalid(format!("the parameter '{name}' is '{text}', not a number")))
}

/// Decodes a part of a form: `+` stands for a space. `None` for what is not UTF-8.
pub(crate) fn form_decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(String::from)
}

/// The JSON body of a request. An empty body is read as `{}`; unknown fields are ignored, as the
/// clients of later releases expect.
pub(crate) async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let bytes = bodies::collect(request.into_body(), JSON_BYTES_MAX).await?;
    let body: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("invalid request body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_slash_stays_in_its_segment() {
        assert_eq!(segments("/templates/team%2Fname%3Av1").unwrap(), ["templates", "team/name:v1"]);
        assert_eq!(segments("/sandboxes/").unwrap(), ["sandboxes", ""]);
        assert!(segments("/a/%ff").is_err());
    }

    #[test]
    fn a_parameter_is_decoded_once() {
        let uri: Uri = "/files?path=a%2520b+c&limit=7&x".parse().unwrap();
        assert_eq!(parameter(&uri, "path").unwrap().as_deref(), Some("a%20b c"));
        assert_eq!(parameter(&uri, "x").unwrap().as_deref(), Some(""));
        assert_eq!(parameter(&uri, "y").unwrap(), None);
        assert_eq!(number::<u32>(&uri, "limit").unwrap(), Some(7));
        assert!(number::<u32>(&uri, "path").is_err());
        assert!(parameter(&"/files?path=%ff".parse().unwrap(), "path").is_err());
    }
}
