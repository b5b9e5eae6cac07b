//! A terminal in a sandbox, over a WebSocket.

use bytes::Bytes;
use dorm_api_types as wire;
use dorm_api_types::TerminalMessage;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Client, ClientError, Connection, segment};

type Socket = WebSocketStream<Box<dyn Connection>>;

/// An open terminal.
pub struct Terminal {
    /// Sends what is typed.
    pub input: TerminalInput,
    /// Receives what is shown.
    pub output: TerminalOutput,
}

/// The input half of a terminal.
pub struct TerminalInput {
    sink: SplitSink<Socket, Message>,
}

/// The output half of a terminal.
pub struct TerminalOutput {
    server: String,
    stream: SplitStream<Socket>,
}

/// An event of the output half.
#[derive(Debug)]
pub enum TerminalEvent {
    /// The command runs under this handle, by which it can be attached to again.
    Started(u64),
    /// Bytes for the screen.
    Output(Bytes),
    /// This many bytes are no longer kept.
    Lost(u64),
    /// The command has ended.
    Exited(wire::ExitStatus),
}

impl Client {
    /// Opens a terminal. `query` has the parameters of the operation `openTerminal`: `cmd`, `rows`,
    /// `cols`, `user`, `cwd` and `term`, or `attach` and `offset`.
    pub async fn terminal(&self, sandbox: &str, query: &[(&str, String)]) -> Result<Terminal, ClientError> {
        let http = self.http.get(format!("ws://{}/v1/sandboxes/{}/pty", self.door.authority(), segment(sandbox)));
        let built = http.query(query).build().map_err(|source| self.broken(source))?;
        let mut request = built.url().as_str().into_client_request().map_err(|source| self.socket_broken(source))?;
        if let Some(Ok(value)) = self.door.key().map(|key| format!("Bearer {key}").parse()) {
            request.headers_mut().insert("authorization", value);
        }
        for (name, value) in &self.headers {
            if let Ok(value) = value.parse() {
                request.headers_mut().insert(*name, value);
            }
        }
        let connection = self.connect().await?;
        match tokio_tungstenite::client_async(request, connection).await {
            Ok((socket, _)) => {
                let (sink, stream) = socket.split();
                let output = TerminalOutput { server: self.server.clone(), stream };
                Ok(Terminal { input: TerminalInput { sink }, output })
            }
            Err(Error::Http(answer)) => {
                let body = answer.body().as_deref().unwrap_or_default();
                Err(self.refused(answer.status().as_u16(), body, None))
            }
            Err(Error::Io(source)) => {
                Err(ClientError::Unreachable { server: self.server.clone(), source: Box::new(source) })
            }
            Err(source) => Err(self.socket_broken(source)),
        }
    }

    fn socket_broken(&self, source: Error) -> ClientError {
        ClientError::Broken { server: self.server.clone(), source: Box::new(source) }
    }
}

impl TerminalInput {
    /// Sends typed bytes. If the connection is gone, the output half reports it.
    pub async fn write(&mut self, bytes: Bytes) {
        let _ = self.sink.send(Message::Binary(bytes)).await;
    }

    /// Ends the input.
    pub async fn end(&mut self) {
        self.say(&TerminalMessage::Eof).await;
    }

    /// Sends a new size of the screen.
    pub async fn resize(&mut self, size: wire::TerminalSize) {
        self.say(&TerminalMessage::Resize { rows: size.rows, cols: size.cols }).await;
    }

    async fn say(&mut self, message: &TerminalMessage) {
        if let Ok(text) = serde_json::to_string(message) {
            let _ = self.sink.send(Message::Text(text.into())).await;
        }
    }
}

impl TerminalOutput {
    /// Returns the next event. The last one is [`TerminalEvent::Exited`].
    pub async fn next(&mut self) -> Result<TerminalEvent, ClientError> {
        while let Some(message) = self.stream.next().await {
            let broken = |source| ClientError::Broken { server: self.server.clone(), source: Box::new(source) };
            match message.map_err(broken)? {
                Message::Binary(bytes) => return Ok(TerminalEvent::Output(bytes)),
                Message::Text(text) => {
                    let said = serde_json::from_str(&text);
                    match said.map_err(|source| ClientError::Unreadable { server: self.server.clone(), source })? {
                        TerminalMessage::Lost { bytes, .. } => return Ok(TerminalEvent::Lost(bytes)),
                        TerminalMessage::Exit { exit_code, signal } => {
                            let status = wire::ExitStatus { exit_code, signal, timed_out: false };
                            return Ok(TerminalEvent::Exited(status));
                        }
                        TerminalMessage::Error { status, code, detail, next_step } => {
                            let kind = format!("/errors/{code}");
                            let error = wire::Problem { kind, title: String::new(), status, detail, code, next_step };
                            return Err(ClientError::refused_in_stream(error));
                        }
                        TerminalMessage::Started { process, .. } => return Ok(TerminalEvent::Started(process)),
                        TerminalMessage::Resize { .. } | TerminalMessage::Eof => {}
                    }
                }
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Err(ClientError::Ended { server: self.server.clone() })
    }
}
