//! Permission for web pages to call `envd`. Every page may, since a request needs a token and no
//! cookie counts.

use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::Response;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const ANY: HeaderValue = HeaderValue::from_static("*");
/// How long a browser may remember the permission, in seconds.
const AGE: HeaderValue = HeaderValue::from_static("7200");

/// The web page that sends a request, if one does.
pub(super) struct Page {
    wishes: Option<HeaderValue>,
}

impl Page {
    pub(super) fn of(request: &Request) -> Self {
        Self { wishes: request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned() }
    }

    /// Lets the page read an answer.
    pub(super) fn may_read(self, mut answer: Response) -> Response {
        let permits: [(HeaderName, HeaderValue); 5] = [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            // A wildcard does not include `Authorization`.
            (header::ACCESS_CONTROL_ALLOW_HEADERS, self.wishes.unwrap_or(ANY)),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, ANY),
            (header::ACCESS_CONTROL_MAX_AGE, AGE),
        ];
        answer.headers_mut().extend(permits);
        answer
    }
}
