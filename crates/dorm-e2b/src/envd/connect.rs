//! The Connect protocol over HTTP/1.1, as far as clients of E2B use it: JSON messages without
//! compression, unary calls, and streams in one direction.
//!
//! ```text
//! unary   body: one JSON message
//! stream  body: frames, each 1 byte of flags, 4 bytes of length, and a JSON message;
//!               the server's last frame is marked as the end and tells how the call ended
//! ```
//!
//! Clients tell a sandbox that was killed from a call that has failed by how a stream ends: only
//! the latter has a last frame. A stream that breaks therefore breaks the connection.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use dorm_http::bodies;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::access::Call;
use super::fault::{Code, Failed, Fault};

pub(crate) mod frames;
pub(crate) mod json;

use frames::Frames;

const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const PING: HeaderName = HeaderName::from_static("keepalive-ping-interval");
const STREAM_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
const UNARY: &str = "application/json";
const STREAM: &str = "application/connect+json";

/// After how long a silent stream gets a message, unless the client asks for another time.
const PING_DEFAULT: Duration = Duration::from_secs(90);
/// The longest time that a client can ask for.
const PING_MAX: Duration = Duration::from_secs(24 * 3600);

/// The longest message, in bytes. Input for a process is a part of one, in base64.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The longest time limit that a client can name has ten digits of milliseconds.
const TIMEOUT_DIGITS_MAX: usize = 10;

/// An item of a stream to the client.
pub(crate) enum Item {
    /// A message, as JSON.
    Message(Vec<u8>),
    /// The call has failed, and the stream ends.
    Fault(Fault),
    /// The sandbox is gone, and the connection breaks.
    Cut,
}

impl Item {
    /// A message.
    pub(crate) fn of(message: &impl Serialize) -> Self {
        match serde_json::to_vec(message) {
            Ok(json) => Self::Message(json),
            Err(error) => Self::Fault(Fault::new(Code::Internal, error.to_string())),
        }
    }

    /// The end of a stream for this reason.
    pub(crate) fn end(error: impl Into<Failed>) -> Self {
        match error.into() {
            Failed::Unreachable(_) => Self::Cut,
            Failed::Refused(fault) => Self::Fault(fault),
        }
    }
}

/// How long a call may take. A process that it starts is ended then.
pub(crate) fn time_limit(headers: &HeaderMap) -> Result<Option<Duration>, Fault> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let number = if text.len() <= TIMEOUT_DIGITS_MAX { text.parse().ok() } else { None };
    let invalid = || Fault::invalid(format!("the header {TIMEOUT} is '{text}', not a number of milliseconds"));
    number.map(Duration::from_millis).map(Some).ok_or_else(invalid)
}

/// After how long a silent stream gets a message.
fn ping_interval(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(PING).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.filter(|seconds| *seconds > 0).map_or(PING_DEFAULT, |seconds| Duration::from_secs(seconds).min(PING_MAX))
}

/// Answers a unary call.
pub(crate) async fn unary<Q, A, F>(call: &Call, request: Request, work: impl FnOnce(Q) -> F) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, Failed>>,
{
    let answer = async {
        let limit = time_limit(request.headers())?;
        let asked = one_message(request.headers(), UNARY, &header::CONTENT_ENCODING).map(|()| request.into_body())?;
        let body = bodies::collect(asked, MESSAGE_BYTES_MAX).await?;
        let asked = json::parse(&body)?;
        // The work holds what the message contained, such as input that a process does not take.
        let _held = body.into_share();
        within(limit, work(asked)).await
    };
    match answer.await {
        Ok(answer) => axum::Json(answer).into_response(),
        Err(failed) => refuse(call, failed).await,
    }
}

/// Answers a call whose answer is a stream. `ping` is the message that a silent one gets. The
/// stream ends at the time limit of the client, unless `work` sees to that.
pub(crate) async fn server_stream<Q, S, F>(
    call: &Call,
    request: Request,
    options: StreamOptions,
    work: impl FnOnce(Q) -> F,
) -> Response
where
    Q: DeserializeOwned,
    S: Stream<Item = Item> + Send + 'static,
    F: Future<Output = Result<S, Failed>>,
{
    let headers = request.headers().clone();
    let opened = async {
        let limit = time_limit(&headers)?;
        let mut frames = Frames::of(&headers, request.into_body())?;
        let asked = json::parse(&frames.only().await?)?;
        let until = limit.and_then(|limit| Instant::now().checked_add(limit + options.grace));
        Ok::<_, Failed>((within(limit.map(|limit| limit + options.grace), work(asked)).await?, until))
    };
    match opened.await {
        Ok((items, until)) => {
            let (ping, every, stop) = (options.ping, ping_interval(&headers), call.life.stop.clone());
            let sending = Sending { items: Box::pin(items), until, ping, every, stop };
            framed(Body::from_stream(stream::unfold(Some(sending), next)))
        }
        Err(Failed::Refused(fault)) => streamed_fault(&fault),
        Err(failed) => refuse(call, failed).await,
    }
}

/// How a stream to the client is kept open and ended.
#[derive(Clone, Copy)]
pub(crate) struct StreamOptions {
    /// The message that a silent stream gets.
    pub(crate) ping: &'static [u8],
    /// How long after the time limit of the client the stream is ended at the latest.
    pub(crate) grace: Duration,
}

/// Answers a call whose request is a stream.
pub(crate) async fn client_stream<A, F>(call: &Call, request: Request, work: impl FnOnce(Frames) -> F) -> Response
where
    A: Serialize,
    F: Future<Output = Result<A, Failed>>,
{
    let answer = async {
        let limit = time_limit(request.headers())?;
        let (head, body) = request.into_parts();
        within(limit, work(Frames::of(&head.headers, body)?)).await
    };
    match answer.await {
        Ok(answer) => match Item::of(&answer) {
            Item::Message(message) => {
                let frames = [frames::message(&message), frames::end(None)];
                framed(Body::from_stream(stream::iter(frames.map(Ok::<_, io::Error>))))
            }
            Item::Fault(fault) => streamed_fault(&fault),
            Item::Cut => streamed_fault(&Fault::new(Code::Internal, "no answer")),
        },
        Err(Failed::Refused(fault)) => streamed_fault(&fault),
        Err(failed) => refuse(call, failed).await,
    }
}

/// The answer to a request for a method that does not exist.
pub(crate) fn no_method(method: &Method, path: &str) -> Response {
    if method != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]).into_response();
    }
    let fault = Fault::new(Code::Unimplemented, format!("there is no method '{path}'"));
    (StatusCode::NOT_FOUND, axum::Json(told(&fault))).into_response()
}

/// Ends a call at its time limit.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let Some(limit) = limit else { return work.await };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(late().into()),
    }
}

fn late() -> Fault {
    Fault::new(Code::DeadlineExceeded, "the time limit of the call has passed")
}

/// The answer to a call that was not carried out.
async fn refuse(call: &Call, failed: Failed) -> Response {
    match failed {
        Failed::Refused(fault) => (fault.code.status(), axum::Json(told(&fault))).into_response(),
        Failed::Unreachable(error) => call.unreachable(error).await,
    }
}

fn told(fault: &Fault) -> serde_json::Value {
    json!({ "code": fault.code.as_str(), "message": fault.message })
}

/// Rejects a request in another encoding than JSON without compression.
fn one_message(headers: &HeaderMap, content: &'static str, encoding: &HeaderName) -> Result<(), Fault> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let given = text(&header::CONTENT_TYPE).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case(content) {
        return Err(Fault::new(Code::Unimplemented, format!("the content type is '{given}': use {content}")));
    }
    match text(encoding) {
        None | Some("" | "identity") => Ok(()),
        Some(other) => Err(Fault::new(Code::Unimplemented, format!("unknown compression '{other}': use identity"))),
    }
}

/// A stream on its way to the client.
struct Sending {
    items: Pin<Box<dyn Stream<Item = Item> + Send>>,
    until: Option<Instant>,
    ping: &'static [u8],
    every: Duration,
    stop: CancellationToken,
}

async fn next(sending: Option<Sending>) -> Option<(io::Result<Bytes>, Option<Sending>)> {
    let mut sending = sending?;
    let ping = Instant::now() + sending.every;
    let until = sending.until.filter(|until| *until <= ping);
    let item = tokio::select! {
        biased;
        item = sending.items.next() => item,
        () = sending.stop.cancelled() => Some(Item::Cut),
        () = tokio::time::sleep_until(until.unwrap_or(ping)) => Some(match until {
            Some(_) => Item::Fault(late()),
            None => Item::Message(sending.ping.to_vec()),
        }),
    };
    match item {
        Some(Item::Message(message)) => Some((Ok(frames::message(&message)), Some(sending))),
        Some(Item::Fault(fault)) => Some((Ok(frames::end(Some(&fault))), None)),
        None => Some((Ok(frames::end(None)), None)),
        Some(Item::Cut) => {
            // The server sends all it has when nothing more is ready.
            tokio::task::yield_now().await;
            Some((Err(io::ErrorKind::ConnectionAborted.into()), None))
        }
    }
}

fn streamed_fault(fault: &Fault) -> Response {
    let end = frames::end(Some(fault));
    framed(Body::from_stream(stream::once(async { Ok::<_, io::Error>(end) })))
}

fn framed(body: Body) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(STREAM))], body).into_response()
}
