//! Server-sent events, parsed as they arrive.

use std::collections::VecDeque;

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde::de::DeserializeOwned;

use super::ClientError;

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SseEvent {
    /// Its kind.
    pub kind: String,
    /// Its data.
    pub data: String,
}

/// A stream of server-sent events. It ends with its connection.
pub struct Sse {
    server: String,
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    parser: Parser,
}

impl Sse {
    pub(super) fn new(server: String, answer: reqwest::Response) -> Self {
        Self { server, body: answer.bytes_stream().boxed(), parser: Parser::default() }
    }

    /// Returns the next event, or none if the stream has ended. An `error` event is returned as an
    /// error.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, ClientError> {
        loop {
            if let Some(event) = self.parser.ready.pop_front() {
                if event.kind == "error" {
                    return Err(ClientError::refused_in_stream(self.parse::<wire::Problem>(&event)?));
                }
                return Ok(Some(event));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.parser.feed(&bytes),
                Some(Err(source)) => {
                    return Err(ClientError::Broken { server: self.server.clone(), source: Box::new(source) });
                }
                None => return Ok(None),
            }
        }
    }

    /// Parses the data of an event.
    pub fn parse<T: DeserializeOwned>(&self, event: &SseEvent) -> Result<T, ClientError> {
        serde_json::from_str(&event.data)
            .map_err(|source| ClientError::Unreadable { server: self.server.clone(), source })
    }

    /// Returns the error for an event that cannot be read.
    pub(super) fn unreadable(&self, error: impl std::fmt::Display) -> ClientError {
        ClientError::Unreadable { server: self.server.clone(), source: serde::de::Error::custom(error) }
    }

    /// Returns the error for a stream that ended too early.
    pub fn ended(&self) -> ClientError {
        ClientError::Ended { server: self.server.clone() }
    }
}

#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    kind: String,
    data: Vec<String>,
    ready: VecDeque<SseEvent>,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take(&String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)));
        }
        self.line.extend_from_slice(rest);
    }

    fn take(&mut self, line: &str) {
        if line.is_empty() {
            let (kind, data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
            if !data.is_empty() {
                self.ready.push_back(SseEvent { kind, data: data.join("\n") });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => self.data.push(value.to_owned()),
            // Comments that keep the stream alive, ids and retry times.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text =
            ": hello\n\nevent: stdout\ndata: {\"a\":1}\nid: 7\n\n:\nevent: exit\r\ndata:x\r\ndata: ü\r\n\r\ndata: half";
        let expected = [
            SseEvent { kind: "stdout".to_owned(), data: "{\"a\":1}".to_owned() },
            SseEvent { kind: "exit".to_owned(), data: "x\nü".to_owned() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            for piece in text.as_bytes().chunks(size) {
                parser.feed(piece);
            }
            assert_eq!(Vec::from(parser.ready), expected, "pieces of {size}");
        }
    }
}
