//! Responses that stay open: streams of server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use serde::Serialize;

use crate::error::ApiError;

/// The interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event with its data as JSON.
pub(crate) fn event(kind: &str, data: &impl Serialize) -> Event {
    let event = Event::default().event(kind);
    // Wire types always serialise to JSON.
    event.json_data(data).unwrap_or_default()
}

/// The last event of a stream that ends with an error.
pub(crate) fn failure(error: ApiError) -> Event {
    event("error", &error.into_body())
}

/// A response with a stream of events.
pub(crate) fn answer(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let mut response =
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // Proxies must not buffer events.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}
