//! The service `process.Process`: processes of a sandbox, which are the agent's.
//!
//! A process belongs to the sandbox: it continues when its client leaves. Clients name processes by
//! process ID or by tag; the tag is the label that the agent keeps.

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use dorm_agent_client::{Agent, ProcessKey, ProcessStatus};
use dorm_service::{InUse, Use};

use super::access::Call;
use super::connect;
use super::connect::json::Number;
use super::fault::{Code, Failed, Fault};

mod input;
mod list;
mod output;
mod start;
mod wire;

use wire::{Empty, Selector};

/// The path of the service.
pub(crate) const PATH: &str = "/process.Process/";

/// Whether a path is that of the method whose request is a stream.
pub(crate) fn is_stream_of_client(path: &str) -> bool {
    path.strip_prefix(PATH) == Some("StreamInput")
}

/// Answers a call of a method.
pub(crate) async fn answer(call: &Call, method: &str, request: Request) -> Response {
    if request.method() != Method::POST {
        return connect::no_method(request.method(), request.uri().path());
    }
    match method {
        "List" => connect::unary(call, request, |_: Empty| list::list(call)).await,
        "Start" => start::start(call, request).await,
        "Connect" => connect::server_stream(call, request, output::OPTIONS, |asked| output::connect(call, asked)).await,
        "Update" => connect::unary(call, request, |asked| input::update(call, asked)).await,
        "StreamInput" => connect::client_stream(call, request, |frames| input::stream(call, frames)).await,
        "SendInput" => connect::unary(call, request, |asked| input::send(call, asked)).await,
        "SendSignal" => connect::unary(call, request, |asked| input::signal(call, asked)).await,
        "CloseStdin" => connect::unary(call, request, |asked| input::close(call, asked)).await,
        _ => connect::no_method(request.method(), request.uri().path()),
    }
}

/// The processes that a selector can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Among {
    Living,
    /// Also those that have ended and are still remembered.
    All,
}

/// The process that a client names. Of several with one tag, or that had one process ID after each
/// other, it is the newest, and a living one if there is one.
async fn find(agent: &Agent, selector: Option<Selector>, among: Among) -> Result<ProcessStatus, Failed> {
    let (key, missing) = match selector.unwrap_or_default() {
        Selector { pid: Some(Number(pid)), tag: None } => {
            (ProcessKey::Pid(pid), format!("process with pid {pid} not found"))
        }
        Selector { pid: None, tag: Some(tag) } => {
            let missing = format!("process with tag {tag} not found");
            (ProcessKey::Label(tag), missing)
        }
        Selector { pid: Some(_), tag: Some(_) } => {
            return Err(Fault::invalid("a process is named by pid or by tag, not by both").into());
        }
        Selector { pid: None, tag: None } => {
            return Err(Fault::invalid("no process is named: give its pid or tag").into());
        }
    };
    let found = agent.find_processes(key).await?.into_iter();
    let wanted = found.filter(|status| among == Among::All || status.exit.is_none());
    wanted
        .max_by_key(|status| (status.exit.is_none(), status.process))
        .ok_or_else(|| Fault::new(Code::NotFound, missing).into())
}

/// The process that a client names, and the agent.
async fn found(call: &Call, selector: Option<Selector>) -> Result<(Agent, InUse, ProcessStatus), Failed> {
    let (agent, in_use) = call.agent(Use::Process).await?;
    let status = find(&agent, selector, Among::Living).await?;
    Ok((agent, in_use, status))
}

/// Reads a message of any method, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn message(json: &[u8]) {
    let _ = connect::json::parse::<wire::StartRequest>(json);
    let _ = connect::json::parse::<wire::StreamInputRequest>(json);
    let _ = connect::json::parse::<wire::SendSignalRequest>(json);
}
