//! Running a command and waiting for it to end.

use axum::response::{IntoResponse, Response};
use dorm_agent_client::{ExitStatus, Offsets, Output, OutputKind};
use dorm_api_types as wire;
use dorm_http::sse;
use dorm_service::{CommandInput, Execution, ServiceError};
use futures_util::{StreamExt, stream};

use super::output;
use crate::convert::{self, Command, Convert, Of};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Json, Sandbox, WantsEvents, bytes_of, seconds};

/// How many bytes of each output a response that is not a stream contains. Later bytes can be read
/// from the process's output, as long as they are kept.
const KEPT_BYTES: usize = 4 << 20;

/// Run a command
///
/// Responds with the output when the command has ended. With `Accept: text/event-stream`, the
/// response is a stream of server-sent events: `checkpoint` if one was requested, `started`, then
/// `stdout`, `stderr` and `lost` as output arrives, in the order in which it was written, and
/// finally `exit` or `error`. The command continues if the client disconnects.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", operation_id = "execCommand", tag = "processes",
    request_body = wire::ExecRequest,
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one.")),
    responses(
        (status = 200, description = "The result of the command, or its output as a stream.",
            content((wire::ExecResult = "application/json"), (wire::CommandEvent = "text/event-stream"))),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn exec(
    ForRequest(service): ForRequest,
    Sandbox(id): Sandbox,
    WantsEvents(events): WantsEvents,
    Json(asked): Json<wire::ExecRequest>,
) -> Result<Response, ApiError> {
    let wire::ExecRequest { argv, shell, env, cwd, user, stdin, stdin_open, timeout_secs, checkpoint } = asked;
    let spec = convert::command(Command { argv, shell, env, cwd, user })?;
    let input = match (stdin, stdin_open) {
        (Some(_), true) => {
            let message = "give either stdin, which is the whole input, or stdin_open";
            return Err(ApiError::invalid(message, "leave stdin out and write it with /processes/{process}/stdin"));
        }
        (Some(text), false) => CommandInput::Whole(bytes_of("stdin", &text)?.into()),
        (None, true) => CommandInput::Open,
        (None, false) => CommandInput::Empty,
    };
    let limit = timeout_secs.map(|value| seconds("timeout_secs", value)).transpose()?;
    let checkpoint = match checkpoint {
        Some(kind) => Some(service.checkpoint_before(&id, kind.convert()).await?.id.to_string()),
        None => None,
    };
    let execution = service.exec(&id, spec, input, limit).await?;
    if events {
        return Ok(follow(execution, checkpoint));
    }
    Ok(axum::Json(collect(execution, checkpoint).await?).into_response())
}

async fn collect(mut execution: Execution, checkpoint: Option<String>) -> Result<wire::ExecResult, ApiError> {
    let mut stdout = Kept::default();
    let mut stderr = Kept::default();
    let mut exit = None;
    while let Some(output) = execution.next().await {
        match output? {
            Output::Stdout { bytes, .. } => stdout.add(&bytes),
            Output::Stderr { bytes, .. } => stderr.add(&bytes),
            Output::Lost { kind: OutputKind::Stdout, bytes, .. } => stdout.lose(bytes),
            Output::Lost { kind: OutputKind::Stderr, bytes, .. } => stderr.lose(bytes),
            Output::Exited(status) => exit = Some(status),
        }
    }
    let Some(status) = exit else {
        let missing = "an output without an end".to_owned();
        return Err(ServiceError::from(dorm_agent_client::AgentError::Protocol(missing)).into());
    };
    let (exit_code, signal) = match status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
    };
    let (stdout_text, stdout_encoding) = convert::data(&stdout.bytes);
    let (stderr_text, stderr_encoding) = convert::data(&stderr.bytes);
    Ok(wire::ExecResult {
        process: execution.started.process,
        pid: execution.started.pid,
        exit_code,
        signal,
        timed_out: execution.timed_out(),
        stdout: stdout_text,
        stdout_encoding,
        stdout_truncated_bytes: stdout.truncated,
        stderr: stderr_text,
        stderr_encoding,
        stderr_truncated_bytes: stderr.truncated,
        checkpoint,
    })
}

/// The beginning of an output, without a gap.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let room = if self.truncated == 0 { KEPT_BYTES - self.bytes.len() } else { 0 };
        let (kept, rest) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(kept);
        self.lose(rest.len() as u64);
    }

    fn lose(&mut self, bytes: u64) {
        self.truncated = self.truncated.saturating_add(bytes);
    }
}

fn follow(execution: Execution, checkpoint: Option<String>) -> Response {
    let checkpoint = checkpoint.map(|snapshot| sse::event("checkpoint", &wire::CheckpointTaken { snapshot }));
    let started = sse::event("started", &wire::ProcessStarted::of(execution.started));
    let begin = (execution, Offsets::BEGINNING, Stage::Open);
    let output = stream::unfold(begin, |(mut execution, mut at, stage)| async move {
        if stage == Stage::Over {
            return None;
        }
        let (event, stage) = match execution.next().await? {
            Ok(Output::Exited(status)) => (output::exit(status, execution.timed_out(), at), Stage::Over),
            Ok(piece) => (output::event(&piece, &mut at), Stage::Open),
            Err(error) => (error::last_event(error.into()), Stage::Over),
        };
        Some((event, (execution, at, stage)))
    });
    let before = checkpoint.into_iter().chain([started]);
    sse::answer(stream::iter(before).chain(output))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept_without_gaps_and_the_rest_is_counted() {
        let mut kept = Kept::default();
        kept.add(&vec![1; KEPT_BYTES - 1]);
        kept.add(&[2, 3, 4]);
        assert_eq!((kept.bytes.len(), kept.bytes.last(), kept.truncated), (KEPT_BYTES, Some(&2), 2));
        let mut gap = Kept::default();
        gap.lose(5);
        gap.add(&[1]);
        assert_eq!((gap.bytes.len(), gap.truncated), (0, 6));
    }
}
