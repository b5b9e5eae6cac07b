//! Responses that stay open: streams of server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use serde::Serialize;

/// The interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event with its data as JSON.
pub fn event(kind: &str, data: &impl Serialize) -> Event {
    let event = Event::default().event(kind);
    // Wire types always serialise to JSON.
    event.json_data(data).unwrap_or_default()
}

/// The id of the last event that a reconnecting client has seen.
pub fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty())
}

/// A response with a stream of events.
pub fn answer(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let mut response =
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // Proxies must not buffer events.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}
