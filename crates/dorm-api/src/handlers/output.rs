//! The output of a process as server-sent events, each with the position to continue from.

use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use dorm_agent_client::{ExitStatus, Offsets, Output, OutputKind, OutputStream};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_service::{InUse, Use};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use super::processes::status;
use crate::convert::{self, Convert};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Process, Query};

/// Parameters of an output stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputQuery {
    /// Start at this byte of standard output. Default 0. A position past the end means the end.
    stdout: Option<u64>,
    /// Start at this byte of standard error. Default 0. A position past the end means the end.
    stderr: Option<u64>,
    /// Stream until the process ends. If false, the stream ends with the output that exists now.
    /// Default: true.
    follow: Option<bool>,
}

/// Stream the output of a process
///
/// A stream of server-sent events: `stdout` and `stderr` carry output, in the order in which it was
/// read from the process, `lost` marks output that is no longer kept, and `exit` is the last event.
/// The id of each event is the position after it, `STDOUT,STDERR` in bytes; send it back as
/// `Last-Event-ID` to continue there.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}/output", operation_id = "streamProcessOutput",
    tag = "processes",
    params(
        ("id" = String, Path, description = "ID of a sandbox, or name of a living one."),
        ("process" = u64, Path, description = "Handle of the process."),
        OutputQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "ID of the last event received."),
    ),
    responses(
        (status = 200, description = "The output as server-sent events.",
            content_type = "text/event-stream", body = wire::OutputEvent),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn output(
    ForRequest(service): ForRequest,
    Process(id, process): Process,
    headers: HeaderMap,
    Query(query): Query<OutputQuery>,
) -> Result<Response, ApiError> {
    let from = query.from(&headers)?;
    let (agent, in_use) = service.agent(&id, Use::Output).await?;
    let now = status(&agent, process).await?;
    let (from, until) = query.span(from, now.written, now.exit.is_some());
    Ok(answer(agent.output(process, from).await?, (from, until), in_use))
}

impl OutputQuery {
    /// The position at which the client wants to begin.
    pub(super) fn from(&self, headers: &HeaderMap) -> Result<Offsets, ApiError> {
        match sse::last_event_id(headers) {
            Some(id) => place(id),
            None => Ok(Offsets { stdout: self.stdout.unwrap_or(0), stderr: self.stderr.unwrap_or(0) }),
        }
    }

    /// The positions at which output begins and ends, of which so much is written now.
    pub(super) fn span(&self, from: Offsets, written: Offsets, is_over: bool) -> (Offsets, Option<Offsets>) {
        // A start position past the end would skip the output that is written until then.
        let from = Offsets { stdout: from.stdout.min(written.stdout), stderr: from.stderr.min(written.stderr) };
        let until = match self.follow.unwrap_or(true) {
            true => None,
            // The output of an ended process ends without a limit.
            false => (!is_over).then_some(written),
        };
        (from, until)
    }
}

/// Answers with output between two positions.
pub(super) fn answer(stream: OutputStream, (at, until): (Offsets, Option<Offsets>), in_use: InUse) -> Response {
    let reader = Reader { stream, at, until, over: false, _in_use: in_use };
    sse::answer(stream::unfold(reader, Reader::next))
}

fn place(id: &str) -> Result<Offsets, ApiError> {
    let read = || {
        let (stdout, stderr) = id.split_once(',')?;
        Some(Offsets { stdout: stdout.parse().ok()?, stderr: stderr.parse().ok()? })
    };
    read().ok_or_else(|| {
        ApiError::invalid(format!("Last-Event-ID '{id}' is not an output position, STDOUT,STDERR"), "leave it out")
    })
}

struct Reader {
    stream: OutputStream,
    at: Offsets,
    until: Option<Offsets>,
    over: bool,
    _in_use: InUse,
}

impl Reader {
    async fn next(mut self) -> Option<(Event, Self)> {
        let reached = |until: Offsets| self.at.stdout >= until.stdout && self.at.stderr >= until.stderr;
        if self.over || self.until.is_some_and(reached) {
            return None;
        }
        match self.stream.next().await? {
            Ok(Output::Exited(status)) => {
                self.over = true;
                Some((exit(status, self.stream.timed_out(), self.at), self))
            }
            Ok(output) => Some((event(&output, &mut self.at), self)),
            Err(error) => {
                self.over = true;
                Some((error::last_event(error.into()), self))
            }
        }
    }
}

/// One piece of output as an event; `at` is advanced past it.
pub(crate) fn event(output: &Output, at: &mut Offsets) -> Event {
    let chunk = |offset: u64, read_unix_ms: Option<u64>, bytes: &[u8]| {
        let (data, encoding) = convert::data(bytes.to_vec());
        wire::OutputChunk { offset, read_at: read_unix_ms.map(wire::Time::from_millis), data, encoding }
    };
    let event = match output {
        Output::Stdout { offset, read_unix_ms, bytes } => {
            at.stdout = offset + bytes.len() as u64;
            sse::event("stdout", &chunk(*offset, *read_unix_ms, bytes))
        }
        Output::Stderr { offset, read_unix_ms, bytes } => {
            at.stderr = offset + bytes.len() as u64;
            sse::event("stderr", &chunk(*offset, *read_unix_ms, bytes))
        }
        Output::Lost { kind, offset, bytes } => {
            match kind {
                OutputKind::Stdout => at.stdout = offset + bytes,
                OutputKind::Stderr => at.stderr = offset + bytes,
            }
            sse::event("lost", &wire::LostOutput { stream: (*kind).convert(), offset: *offset, bytes: *bytes })
        }
        Output::Exited(status) => return exit(*status, false, *at),
    };
    event.id(place_of(*at))
}

/// The last event of the output of a process.
pub(crate) fn exit(status: ExitStatus, timed_out: bool, at: Offsets) -> Event {
    sse::event("exit", &wire::ExitStatus { timed_out, ..status.convert() }).id(place_of(at))
}

fn place_of(at: Offsets) -> String {
    format!("{},{}", at.stdout, at.stderr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_two_numbers() {
        assert_eq!(place("12,3").unwrap(), Offsets { stdout: 12, stderr: 3 });
        for text in ["", "12", "12,", "a,b", "-1,2", "1,2,3"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
