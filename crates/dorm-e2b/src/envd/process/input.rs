//! Input, signals and sizes of terminals, as clients send them to a process.

use bytes::Bytes;
use dorm_agent_client::{Agent, AgentError, ProcessStatus, Signal, Target};
use dorm_service::Use;

use super::super::access::Call;
use super::super::connect::frames::Frames;
use super::super::connect::json;
use super::super::fault::{Code, Failed, Fault};
use super::start::terminal;
use super::wire::{
    CloseStdinRequest, Empty, Input, SendInputRequest, SendSignalRequest, SignalName, StreamInputRequest, UpdateRequest,
};
use super::{Among, find, found};

/// Changes the size of a terminal.
pub(super) async fn update(call: &Call, asked: UpdateRequest) -> Result<Empty, Failed> {
    let size = asked.pty.map(terminal).transpose()?;
    let (agent, _in_use, status) = found(call, asked.process).await?;
    if let Some(size) = size {
        agent.resize(status.process, size.rows, size.columns).await?;
    }
    Ok(Empty {})
}

/// Writes input to a process.
pub(super) async fn send(call: &Call, asked: SendInputRequest) -> Result<Empty, Failed> {
    let (agent, _in_use, status) = found(call, asked.process).await?;
    write(&agent, &status, asked.input).await?;
    Ok(Empty {})
}

/// Writes input to a process as it arrives. Its first message names the process.
pub(super) async fn stream(call: &Call, mut frames: Frames) -> Result<Empty, Failed> {
    let mut process: Option<(Agent, dorm_service::InUse, ProcessStatus)> = None;
    while let Some(message) = frames.next().await? {
        let StreamInputRequest { start, data, keepalive } = json::parse(&message)?;
        drop(message);
        match (start, data, keepalive) {
            (Some(start), None, None) if process.is_none() => {
                let (agent, in_use) = call.agent(Use::Process).await?;
                let status = find(&agent, start.process, Among::Living).await?;
                process = Some((agent, in_use, status));
            }
            (None, Some(data), None) => {
                let (agent, _, status) =
                    process.as_ref().ok_or_else(|| Fault::invalid("the first message must name the process"))?;
                write(agent, status, data.input).await?;
            }
            (None, None, _) => {}
            _ => return Err(Fault::invalid("a message has one event, and only the first one names a process").into()),
        }
    }
    Ok(Empty {})
}

async fn write(agent: &Agent, status: &ProcessStatus, input: Option<Input>) -> Result<(), Failed> {
    let Input { stdin, pty } = input.unwrap_or_default();
    let bytes = match (stdin, pty, status.terminal) {
        (Some(bytes), None, None) | (None, Some(bytes), Some(_)) => bytes.0,
        (Some(_), None, Some(_)) => return Err(internal(status, "has a terminal: send the input to that")),
        (None, Some(_), None) => return Err(internal(status, "has no terminal")),
        (None, None, _) => return Err(Fault::invalid("the request has no input").into()),
        (Some(_), Some(_), _) => {
            return Err(Fault::invalid("the request has input for stdin and for a terminal").into());
        }
    };
    if bytes.is_empty() {
        return Ok(());
    }
    match agent.write_stdin(status.process, Bytes::from(bytes)).await {
        Err(AgentError::InputClosed(_)) => Err(internal(status, "has no standard input, or it is closed")),
        written => Ok(written?),
    }
}

fn internal(status: &ProcessStatus, problem: &str) -> Failed {
    Fault::new(Code::Internal, format!("process with pid {} {problem}", status.pid)).into()
}

/// Sends a signal to a process, and not to its group.
pub(super) async fn signal(call: &Call, asked: SendSignalRequest) -> Result<Empty, Failed> {
    let signal = match asked.signal {
        Some(SignalName::Name(name)) if name == "SIGNAL_SIGTERM" => Signal::TERMINATE,
        Some(SignalName::Name(name)) if name == "SIGNAL_SIGKILL" => Signal::KILL,
        Some(SignalName::Number(15)) => Signal::TERMINATE,
        Some(SignalName::Number(9)) => Signal::KILL,
        Some(SignalName::Name(other)) => return Err(no_signal(&other)),
        Some(SignalName::Number(other)) => return Err(no_signal(&other.to_string())),
        None => return Err(no_signal("SIGNAL_UNSPECIFIED")),
    };
    let (agent, _in_use) = call.agent(Use::Process).await?;
    // A process that has ended may have output that others still hold open: it ends then.
    let status = find(&agent, asked.process, Among::All).await?;
    match agent.signal(status.process, signal, Target::Process).await {
        Err(AgentError::NoProcess(_)) => {
            Err(Fault::new(Code::NotFound, format!("process with pid {} not found", status.pid)).into())
        }
        sent => Ok(sent.map(|()| Empty {})?),
    }
}

fn no_signal(name: &str) -> Failed {
    Fault::new(Code::Unimplemented, format!("invalid signal: {name}")).into()
}

/// Closes the standard input of a process.
pub(super) async fn close(call: &Call, asked: CloseStdinRequest) -> Result<Empty, Failed> {
    let (agent, _in_use, status) = found(call, asked.process).await?;
    if status.terminal.is_some() {
        let message = "the input of a terminal cannot be closed: send the byte 4 to it";
        return Err(Fault::new(Code::FailedPrecondition, message).into());
    }
    agent.close_stdin(status.process).await?;
    Ok(Empty {})
}
