//! A terminal over a WebSocket. Bytes are binary frames both ways; [`TerminalMessage`]s are text
//! frames.
//!
//! The process belongs to the sandbox: it continues when the client disconnects, and can be
//! attached to again. A client that vanishes without a word is noticed by pings, since its terminal
//! counts as a use of the sandbox.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use dorm_agent_client::{
    Agent, AgentError, GuestString, Offsets, Output, OutputStream, ProcessSpec, ProcessStarted, Variable,
};
use dorm_api_types as wire;
use dorm_api_types::TerminalMessage;
use dorm_service::{InUse, Use};
use futures_util::stream::SplitStream;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use utoipa::IntoParams;

use super::processes::status;
use crate::convert::{self, Convert};
use crate::error::ApiError;
use crate::extract::{ForRequest, Query, Sandbox, guest_path, user};
use crate::state::Api;

/// The largest frame that a client may send.
const FRAME_BYTES_MAX: usize = 1 << 20;
const TERM: &str = "xterm-256color";
/// The time between two pings.
const PING: Duration = Duration::from_secs(30);
/// After how many pings in a row without anything from the client its terminal ends.
const PINGS_UNANSWERED_MAX: u32 = 3;
/// How long the last messages may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// Parameters of a terminal.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PtyQuery {
    /// Command line for `/bin/sh -c`. Default: the login shell of the user.
    cmd: Option<String>,
    /// Rows of the terminal. Default 24.
    rows: Option<u16>,
    /// Columns of the terminal. Default 80.
    cols: Option<u16>,
    /// User to run as: a name, a number, or `UID:GID`. Default: the user of the image, or root.
    user: Option<String>,
    /// Working directory. Default: that of the image, or the home directory of the user.
    cwd: Option<String>,
    /// Value of `TERM`. Default `xterm-256color`.
    term: Option<String>,
    /// Attach to the terminal of the process with this handle instead of starting one.
    attach: Option<u64>,
    /// With `attach`: start at this byte of the output. Default 0. Output that is no longer kept is
    /// skipped.
    offset: Option<u64>,
}

/// A request that can become a WebSocket.
pub(crate) struct Upgrade(WebSocketUpgrade);

impl FromRequestParts<Api> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, api).await;
        upgrade.map(Self).map_err(|rejection: WebSocketUpgradeRejection| {
            let message = format!("the request is not a WebSocket upgrade: {}", rejection.body_text());
            ApiError::invalid(message, "use a WebSocket client").with_status(StatusCode::UPGRADE_REQUIRED)
        })
    }
}

/// Open a terminal over a WebSocket
///
/// Binary frames carry the bytes of the terminal in both directions. Text frames are JSON: the
/// server sends `started` first, `lost` for output that is no longer kept, and `exit` or `error`
/// last; the client sends `resize` and `eof`. The process continues if the client disconnects, and
/// can be attached to again.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/pty", operation_id = "openTerminal", tag = "processes",
    params(("id" = String, Path, description = "ID of a sandbox, or name of a living one."), PtyQuery),
    responses(
        (status = 101, description = "The connection is a WebSocket; the schema describes its text frames.",
            body = wire::TerminalMessage),
        (status = "default", response = ApiError),
    ))]
pub(crate) async fn pty(
    ForRequest(service): ForRequest,
    State(api): State<Api>,
    Sandbox(id): Sandbox,
    Query(mut query): Query<PtyQuery>,
    Upgrade(upgrade): Upgrade,
) -> Result<Response, ApiError> {
    if query.attach.is_none() {
        let image = service.image_config(&id).await;
        query.user = query.user.or(image.user);
        query.cwd = query.cwd.or(image.directory);
    }
    let size = wire::TerminalSize { rows: query.rows.unwrap_or(24), cols: query.cols.unwrap_or(80) };
    let (agent, in_use) = service.agent(&id, Use::Terminal).await?;
    let (started, from) = match query.attach {
        Some(process) => {
            let found = status(&agent, process).await?;
            if found.terminal.is_none() {
                return Err(AgentError::NoTerminal(process).into());
            }
            if query.rows.is_some() || query.cols.is_some() {
                match agent.resize(process, size.rows, size.cols).await {
                    // The output of an ended process can still be read.
                    Ok(()) | Err(AgentError::NoProcess(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            (ProcessStarted { process, pid: found.pid }, query.offset.unwrap_or(0))
        }
        None => {
            let spec = service.with_trust(&id, spec(&agent, &query, size).await?).await?;
            (agent.start(&spec).await?, 0)
        }
    };
    let output = agent.output(started.process, Offsets { stdout: from, stderr: u64::MAX }).await?;
    let terminal = Terminal { agent, started, output, _in_use: in_use };
    let cut = api.life.cut.clone();
    // Held until the terminal has ended, so that the server does not end before it.
    let alive = api.life.tasks.token();
    Ok(upgrade.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX).on_upgrade(move |socket| async move {
        tokio::select! {
            () = terminal.run(socket) => {}
            () = cut.cancelled() => {}
        }
        drop(alive);
    }))
}

async fn spec(agent: &Agent, query: &PtyQuery, size: wire::TerminalSize) -> Result<ProcessSpec, ApiError> {
    let who = query.user.as_deref().map(user).transpose()?;
    let arguments = match &query.cmd {
        Some(line) => convert::shell(line)?,
        None => vec![login_shell(agent, query).await?],
    };
    let mut spec = ProcessSpec::new(arguments);
    spec.user = who;
    spec.directory = query.cwd.as_deref().map(guest_path).transpose()?;
    spec.terminal = Some(size.convert());
    let term = Variable::new("TERM", query.term.as_deref().unwrap_or(TERM));
    spec.variables.push(term.map_err(|error| ApiError::invalid(error.to_string(), ""))?);
    Ok(spec)
}

async fn login_shell(agent: &Agent, query: &PtyQuery) -> Result<GuestString, ApiError> {
    let account = agent.account(&user(query.user.as_deref().unwrap_or("0"))?).await?;
    let shell = account.shell.map_or_else(|| b"/bin/sh".to_vec(), |shell| shell.as_bytes().to_vec());
    GuestString::new(shell).map_err(|error| ApiError::invalid(error.to_string(), ""))
}

struct Terminal {
    agent: Agent,
    started: ProcessStarted,
    output: OutputStream,
    _in_use: InUse,
}

/// The client is gone, or the last message was sent.
struct Over;

impl Terminal {
    async fn run(self, socket: WebSocket) {
        let Self { agent, started, mut output, _in_use } = self;
        let (mut to_caller, mut from_caller) = socket.split();
        let ProcessStarted { process, pid } = started;
        if say(&mut to_caller, &TerminalMessage::Started { process, pid }).await.is_err() {
            return;
        }
        let presence = Presence::default();
        let error = tokio::select! {
            result = show(&mut output, &mut to_caller, &presence) => result.err(),
            result = read(&agent, process, &mut from_caller, &presence) => result.err(),
        };
        let last = async {
            if let Some(error) = error {
                let wire::Problem { status, code, detail, next_step, .. } = error.into_body();
                let _ = say(&mut to_caller, &TerminalMessage::Error { status, code, detail, next_step }).await;
            }
            let _ = to_caller.close().await;
        };
        let _ = timeout(CLOSED_WITHIN, last).await;
    }
}

/// Whether the client is there, as its frames show.
#[derive(Default)]
struct Presence {
    was_heard: AtomicBool,
    /// A frame is being carried out, and those behind it are not read yet.
    is_busy: AtomicBool,
}

impl Presence {
    fn begin(&self) {
        self.was_heard.store(true, Ordering::Relaxed);
        self.is_busy.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Whether the client has sent something since the last call, or cannot be heard now.
    fn take(&self) -> bool {
        self.was_heard.swap(false, Ordering::Relaxed) || self.is_busy.load(Ordering::Relaxed)
    }
}

async fn say(to_caller: &mut (impl Sink<Message> + Unpin), message: &TerminalMessage) -> Result<(), Over> {
    // Wire types always serialise to JSON.
    let text = serde_json::to_string(message).unwrap_or_default();
    to_caller.send(Message::Text(text.into())).await.map_err(|_| Over)
}

/// Forwards the output of the terminal until the process has ended or the client is gone. A client
/// that takes no more output is not asked whether it is there: its connection shows that.
async fn show(
    output: &mut (impl Stream<Item = Result<Output, AgentError>> + Unpin),
    to_caller: &mut (impl Sink<Message> + Unpin),
    presence: &Presence,
) -> Result<(), ApiError> {
    let mut pings = interval_at(Instant::now() + PING, PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = 0;
    loop {
        let piece = tokio::select! {
            biased;
            _ = pings.tick() => {
                if presence.take() {
                    unanswered = 0;
                }
                if unanswered == PINGS_UNANSWERED_MAX || to_caller.send(Message::Ping(Bytes::new())).await.is_err() {
                    return Ok(());
                }
                unanswered += 1;
                continue;
            }
            piece = output.next() => piece,
        };
        let Some(piece) = piece else { return Ok(()) };
        let sent = match piece? {
            Output::Stdout { bytes, .. } => to_caller.send(Message::Binary(bytes)).await.map_err(|_| Over),
            // A terminal has one output stream.
            Output::Stderr { .. } => Ok(()),
            Output::Lost { offset, bytes, .. } => say(to_caller, &TerminalMessage::Lost { offset, bytes }).await,
            Output::Exited(status) => {
                let wire::ExitStatus { exit_code, signal, .. } = status.convert();
                say(to_caller, &TerminalMessage::Exit { exit_code, signal }).await
            }
        };
        if sent.is_err() {
            return Ok(());
        }
    }
}

/// Carries out the client's messages until it is gone.
async fn read(
    agent: &Agent,
    process: u64,
    from_caller: &mut SplitStream<WebSocket>,
    presence: &Presence,
) -> Result<(), ApiError> {
    while let Some(Ok(message)) = from_caller.next().await {
        presence.begin();
        let done = match message {
            Message::Binary(bytes) => agent.write_stdin(process, bytes).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(TerminalMessage::Resize { rows, cols }) => agent.resize(process, rows, cols).await,
                Ok(TerminalMessage::Eof) => agent.close_stdin(process).await,
                Ok(_) => {
                    return Err(ApiError::invalid("only the server sends this message", "send resize or eof"));
                }
                Err(error) => {
                    let message = format!("invalid text frame: {error}");
                    return Err(ApiError::invalid(message, "send the bytes of the terminal as binary frames"));
                }
            },
            Message::Close(_) => return Ok(()),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        presence.end();
        match done {
            // The process has ended, as the output reports.
            Ok(()) | Err(AgentError::NoProcess(_) | AgentError::InputClosed(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures_util::{sink, stream};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    /// Shows a terminal without output; returns the frames to its client, and its end.
    fn shown(presence: &Arc<Presence>) -> (UnboundedReceiver<Message>, JoinHandle<bool>) {
        let (to_caller, frames) = unbounded_channel();
        let mut to_caller = Box::pin(sink::unfold(to_caller, |to_caller, message| async move {
            let _ = to_caller.send(message);
            Ok::<_, Infallible>(to_caller)
        }));
        let presence = presence.clone();
        let show = async move { show(&mut stream::pending(), &mut to_caller, &presence).await.is_ok() };
        (frames, tokio::spawn(show))
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_ends_after_three_pings_without_a_word_from_its_client() {
        let began = Instant::now();
        let (mut frames, end) = shown(&Arc::default());
        assert!(end.await.unwrap());
        assert_eq!(began.elapsed(), PING * (PINGS_UNANSWERED_MAX + 1));
        for _ in 0..PINGS_UNANSWERED_MAX {
            assert!(matches!(frames.recv().await, Some(Message::Ping(_))));
        }
        assert!(frames.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_stays_as_long_as_its_client_answers_some_pings() {
        let presence = Arc::<Presence>::default();
        let (_frames, end) = shown(&presence);
        for _ in 0..100 {
            sleep(PING * PINGS_UNANSWERED_MAX).await;
            presence.begin();
            presence.end();
        }
        assert!(!end.is_finished());
        assert!(end.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_input_waits_for_the_process_is_not_taken_for_gone() {
        let presence = Arc::<Presence>::default();
        let (_frames, end) = shown(&presence);
        presence.begin();
        sleep(PING * 100).await;
        assert!(!end.is_finished());
        presence.end();
        let began = Instant::now();
        assert!(end.await.unwrap());
        assert!(began.elapsed() <= PING * (PINGS_UNANSWERED_MAX + 1));
    }
}
