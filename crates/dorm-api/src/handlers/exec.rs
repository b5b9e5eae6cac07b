//! Running a command and waiting for it to end.

use axum::response::Response;
use dorm_agent_client::{ExitStatus, Offsets, Output, OutputKind};
use dorm_api_types as wire;
use dorm_http::bodies::{self, Share};
use dorm_http::sse;
use dorm_service::{CommandInput, Execution, ServiceError};
use futures_util::{StreamExt, stream};

use super::output;
use crate::collected;
use crate::convert::{self, Command, Convert, Of};
use crate::error::{self, ApiError};
use crate::extract::{ForRequest, Json, Sandbox, WantsEvents, bytes_of, seconds, unread};

/// How many bytes of each output a response that is not a stream contains. Later bytes can be read
/// from the process's output, as long as they are kept.
const KEPT_BYTES: usize = 4 << 20;
/// More than a response takes besides the outputs.
const REST_BYTES: usize = 4 << 10;

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
        // It may be kept longer than the body of the request.
        (Some(text), false) => {
            let bytes = bytes_of("stdin", &text)?;
            CommandInput::Whole(bodies::shared(bytes, Share::empty()).map_err(unread)?)
        }
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
    collect(execution, checkpoint).await
}

async fn collect(mut execution: Execution, checkpoint: Option<String>) -> Result<Response, ApiError> {
    let mut outputs = Outputs::within(Share::of_response());
    let mut exit = None;
    while let Some(output) = execution.next().await {
        match output? {
            Output::Stdout { bytes, .. } => outputs.add(OutputKind::Stdout, &bytes),
            Output::Stderr { bytes, .. } => outputs.add(OutputKind::Stderr, &bytes),
            Output::Lost { kind, bytes, .. } => outputs.of(kind).lose(bytes),
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
    let Outputs { stdout, stderr, share } = outputs;
    let (stdout_text, stdout_encoding) = convert::data(stdout.bytes);
    let (stderr_text, stderr_encoding) = convert::data(stderr.bytes);
    let result = wire::ExecResult {
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
    };
    collected::json(&result, share)
}

/// The outputs, as far as the response has them.
struct Outputs {
    stdout: Kept,
    stderr: Kept,
    share: Share,
}

/// The beginning of an output, without a gap.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// How many bytes they take as text in JSON.
    escaped: usize,
    truncated: u64,
}

impl Outputs {
    fn within(share: Share) -> Self {
        Self { stdout: Kept::default(), stderr: Kept::default(), share }
    }

    fn of(&mut self, kind: OutputKind) -> &mut Kept {
        match kind {
            OutputKind::Stdout => &mut self.stdout,
            OutputKind::Stderr => &mut self.stderr,
        }
    }

    /// Keeps bytes, as far as there is room. The command has run, so its result is shorter rather
    /// than refused if there is no memory for all of it.
    fn add(&mut self, kind: OutputKind, bytes: &[u8]) {
        let (kept, rest) = bytes.split_at(bytes.len().min(self.of(kind).room()));
        let of = self.of(kind);
        let (before, escaped) = (of.bytes.len(), convert::escaped_bytes(kept));
        of.bytes.extend_from_slice(kept);
        of.escaped += escaped;
        let json_bytes = REST_BYTES + self.stdout.json_bytes() + self.stderr.json_bytes();
        let has_room = self.share.hold(json_bytes).is_ok();
        let of = self.of(kind);
        of.lose(rest.len() as u64);
        if !has_room {
            of.bytes.truncate(before);
            of.escaped -= escaped;
            of.lose(kept.len() as u64);
        }
    }
}

impl Kept {
    fn room(&self) -> usize {
        if self.truncated == 0 { KEPT_BYTES - self.bytes.len() } else { 0 }
    }

    /// The most bytes that it takes in the response.
    fn json_bytes(&self) -> usize {
        convert::json_bytes_most(self.bytes.len(), self.escaped)
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
        let mut outputs = Outputs::within(Share::of_response());
        outputs.add(OutputKind::Stdout, &vec![1; KEPT_BYTES - 1]);
        outputs.add(OutputKind::Stdout, &[2, 3, 4]);
        let kept = &outputs.stdout;
        assert_eq!((kept.bytes.len(), kept.bytes.last(), kept.truncated), (KEPT_BYTES, Some(&2), 2));
        outputs.of(OutputKind::Stderr).lose(5);
        outputs.add(OutputKind::Stderr, &[1]);
        assert_eq!((outputs.stderr.bytes.len(), outputs.stderr.truncated), (0, 6));
    }
}
