//! Events, as pages or as a stream.

use std::collections::VecDeque;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_service::Service;
use dorm_store::{EventFilter, EventRecord};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use crate::convert::{Convert, Of};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Query, WantsEvents};
use crate::state::Api;

/// Largest number of events in a page.
const PAGE_MAX: usize = 1000;

/// Parameters of the list of events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only events of this sandbox: its ID, or the name of a living one.
    sandbox: Option<String>,
    /// Cursor: only events with a higher number. Default 0: from the oldest event that is kept. If
    /// events after this number were removed because of their age, the response is the error
    /// `gone`.
    after: Option<u64>,
    /// Only this many of the newest events, 1 to 1000. Ignored when following events.
    newest: Option<usize>,
    /// Largest number of items to return, 1 to 1000. Default 1000. Ignored when following events.
    limit: Option<usize>,
}

/// List or follow events
///
/// Ordered by number. With `Accept: text/event-stream`, the response is a stream of server-sent
/// events that continues with new events as they happen. The id of each server-sent event is the
/// number of the event; send it back as `Last-Event-ID` to continue after it.
#[utoipa::path(get, path = "/v1/events", operation_id = "listEvents", tag = "events",
    params(EventsQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Number of the last event received.")),
    responses(
        (status = 200, description = "One page of events, or the events as a stream.",
            content((wire::EventPage = "application/json"), (wire::Event = "text/event-stream"))),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn events(
    ForRequest(service): ForRequest,
    State(api): State<Api>,
    WantsEvents(follow): WantsEvents,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, ApiError> {
    let limit = query.limit.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit is {limit}: it must be between 1 and {PAGE_MAX}"), ""));
    }
    let sandbox = match &query.sandbox {
        Some(reference) => Some(service.find(reference).await?),
        None => None,
    };
    let after = match sse::last_event_id(&headers).filter(|_| follow) {
        Some(id) => id.parse().map_err(|_| {
            ApiError::invalid(format!("Last-Event-ID '{id}' is not the number of an event"), "leave it out")
        })?,
        None => query.after.unwrap_or(0),
    };
    let project = Some(service.project().clone());
    let newest = query.newest.unwrap_or(0);
    if newest > PAGE_MAX {
        return Err(ApiError::invalid(format!("newest is {newest}: it must be between 1 and {PAGE_MAX}"), ""));
    }
    let filter = EventFilter { project, sandbox, after, limit, newest, ..EventFilter::default() };
    if after > 0 {
        is_kept(after, service.events_removed().await?)?;
    }
    if !follow {
        let events = service.events(&filter).await?;
        // Checked again after the read: events that were removed meanwhile are missing too.
        let removed = service.events_removed().await?;
        if after > 0 {
            is_kept(after, removed)?;
        }
        let oldest = removed + 1;
        let next = events.last().map_or(after, |last| last.number);
        let events = events.into_iter().map(Convert::convert).collect();
        return Ok(axum::Json(wire::EventPage { events, next, oldest }).into_response());
    }
    let follower = Follower {
        // Subscribed before the first page is read, so that no event is missed in between.
        news: service.news(),
        service,
        filter: EventFilter { limit: PAGE_MAX, newest: 0, ..filter },
        read: VecDeque::new(),
        over: false,
    };
    let events = stream::unfold(follower, Follower::next).take_until(api.life.stop.cancelled_owned());
    Ok(sse::answer(events))
}

/// Refuses a cursor if events after it were removed: they must not be skipped silently.
fn is_kept(after: u64, removed: u64) -> Result<(), ApiError> {
    if after >= removed {
        return Ok(());
    }
    let message = format!("the events after {after} up to {removed} were removed because of their age");
    Err(ApiError::gone(message, "leave out `after` to start with the oldest event that is kept"))
}

/// Reads recorded events, and waits for more after the last one.
struct Follower {
    service: Service,
    news: watch::Receiver<u64>,
    filter: EventFilter,
    read: VecDeque<EventRecord>,
    over: bool,
}

impl Follower {
    async fn next(mut self) -> Option<(Event, Self)> {
        while !self.over {
            if let Some(record) = self.read.pop_front() {
                let id = record.number.to_string();
                let event = sse::event("event", &wire::Event::of(record)).id(id);
                return Some((event, self));
            }
            self.news.mark_unchanged();
            match self.service.events(&self.filter).await {
                Err(error) => {
                    self.over = true;
                    return Some((error::last_event(error.into()), self));
                }
                Ok(records) => self.read = records.into(),
            }
            if let Some(last) = self.read.back() {
                self.filter.after = last.number;
            } else if self.news.changed().await.is_err() {
                self.over = true;
            }
        }
        None
    }
}
