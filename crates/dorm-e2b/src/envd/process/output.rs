//! The events of a process: its start, its output, and its end.

use std::pin::Pin;
use std::time::Duration;

use dorm_agent_client::{AgentError, ExitStatus, Offsets, Output, OutputStream};
use dorm_service::{Execution, InUse, Use};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::json;

use super::super::access::Call;
use super::super::connect::json::append_base64;
use super::super::connect::{Item, StreamOptions};
use super::super::fault::{Code, Failed, Fault};
use super::wire::ConnectRequest;
use super::{Among, find};

/// A stream of events that ends at the time limit of its client.
pub(super) const OPTIONS: StreamOptions =
    StreamOptions { ping: br#"{"event":{"keepalive":{}}}"#, grace: Duration::ZERO };

/// The output that a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Pipes,
    Terminal,
}

/// The output of a process, and whether it was killed at its time limit.
pub(super) trait Source: Stream<Item = Result<Output, AgentError>> + Send + Unpin + 'static {
    fn timed_out(&self) -> bool;
}

impl Source for Execution {
    fn timed_out(&self) -> bool {
        Self::timed_out(self)
    }
}

impl Source for Following {
    fn timed_out(&self) -> bool {
        self.output.timed_out()
    }
}

/// The output of a process that another call has started.
pub(super) struct Following {
    output: OutputStream,
    _in_use: InUse,
}

impl Stream for Following {
    type Item = Result<Output, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        Pin::new(&mut self.get_mut().output).poll_next(context)
    }
}

/// Follows a process from now on; or if a suspend has cut the stream of an earlier call, from there
/// on, so that no output is lost.
pub(super) async fn connect(call: &Call, asked: ConnectRequest) -> Result<impl Stream<Item = Item> + use<>, Failed> {
    let (agent, in_use) = call.agent(Use::Output).await?;
    let status = find(&agent, asked.process, Among::All).await?;
    let output = agent.output(status.process, Offsets::CONTINUED).await?;
    let kind = if status.terminal.is_some() { Kind::Terminal } else { Kind::Pipes };
    Ok(events(status.pid, kind, Following { output, _in_use: in_use }))
}

/// The events of a process with this output.
pub(super) fn events(pid: u32, kind: Kind, output: impl Source) -> impl Stream<Item = Item> {
    let start = Item::of(&json!({ "event": { "start": { "pid": pid } } }));
    let behind = stream::unfold(Next::Output(output), move |next| event(kind, next));
    stream::iter([start]).chain(behind)
}

enum Next<S> {
    Output(S),
    Nothing,
}

async fn event<S: Source>(kind: Kind, next: Next<S>) -> Option<(Item, Next<S>)> {
    let Next::Output(mut output) = next else { return None };
    let item = match output.next().await {
        Some(Ok(Output::Stdout { bytes, .. })) => match kind {
            Kind::Pipes => data("stdout", &bytes),
            Kind::Terminal => data("pty", &bytes),
        },
        Some(Ok(Output::Stderr { bytes, .. })) => data("stderr", &bytes),
        Some(Ok(Output::Lost { bytes, .. })) => {
            let message = format!("{bytes} bytes of output were dropped because the client read too slowly");
            return Some((Item::Fault(Fault::new(Code::DataLoss, message)), Next::Nothing));
        }
        Some(Ok(Output::Exited(_))) if output.timed_out() => {
            let message = "the process ran into its time limit and was killed";
            return Some((Item::Fault(Fault::new(Code::DeadlineExceeded, message)), Next::Nothing));
        }
        Some(Ok(Output::Exited(status))) => return Some((end(status), Next::Nothing)),
        Some(Err(error)) => return Some((Item::end(error), Next::Nothing)),
        // The output of a process ends with its exit status.
        None => return Some((Item::Cut, Next::Nothing)),
    };
    Some((item, Next::Output(output)))
}

fn data(stream: &str, bytes: &[u8]) -> Item {
    let mut json = Vec::with_capacity(48 + bytes.len().div_ceil(3) * 4);
    json.extend_from_slice(br#"{"event":{"data":{""#);
    json.extend_from_slice(stream.as_bytes());
    json.extend_from_slice(br#"":""#);
    append_base64(bytes, &mut json);
    json.extend_from_slice(br#""}}}"#);
    Item::Message(json)
}

fn end(status: ExitStatus) -> Item {
    let end = match status {
        ExitStatus::Code(0) => json!({ "exited": true, "status": "exit status 0" }),
        ExitStatus::Code(code) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        ExitStatus::Signal(signal) => {
            let status = format!("signal: {}", signal_text(signal));
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
    };
    Item::of(&json!({ "event": { "end": end } }))
}

/// How clients expect a signal to be called.
fn signal_text(signal: i32) -> String {
    let text = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(item: Item) -> String {
        let Item::Message(json) = item else { panic!("it is a message") };
        String::from_utf8(json).unwrap()
    }

    fn parsed(item: Item) -> serde_json::Value {
        serde_json::from_str(&text(item)).unwrap()
    }

    #[test]
    fn output_is_base64_in_an_event() {
        assert_eq!(text(data("stdout", b"hi\n")), r#"{"event":{"data":{"stdout":"aGkK"}}}"#);
        assert_eq!(text(data("pty", b"")), r#"{"event":{"data":{"pty":""}}}"#);
    }

    #[test]
    fn an_end_tells_the_code_or_the_signal() {
        let ended = |status| parsed(end(status))["event"]["end"].clone();
        assert_eq!(ended(ExitStatus::Code(0)), json!({ "exited": true, "status": "exit status 0" }));
        let failed = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
        assert_eq!(ended(ExitStatus::Code(3)), failed);
        let killed = ended(ExitStatus::Signal(9));
        assert_eq!((&killed["exitCode"], &killed["error"]), (&json!(-1), &json!("signal: killed")));
        assert_eq!(ended(ExitStatus::Signal(15))["status"], "signal: terminated");
    }
}
