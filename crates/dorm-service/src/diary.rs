//! Writes the log of a build or a setup. A line that cannot be written is lost, and the work
//! continues: its record says how it ended.

use std::sync::Arc;

use dorm_storage::{LogId, LogLine, LogStream};

use crate::error::chain;
use crate::shared::Shared;

/// The longest line; longer ones are divided.
const LINE_BYTES_MAX: usize = 4096;

/// A log that is being written.
pub(crate) struct Diary {
    shared: Arc<Shared>,
    id: LogId,
    /// Held while lines are written.
    turn: Arc<tokio::sync::Mutex<()>>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Diary {
    pub(crate) fn new(shared: Arc<Shared>, id: LogId) -> Self {
        Self { shared, id, turn: Arc::default(), stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Returns another writer of the same log, for work that is done at the same time.
    pub(crate) fn another(&self) -> Self {
        let (shared, id, turn) = (self.shared.clone(), self.id.clone(), self.turn.clone());
        Self { shared, id, turn, stdout: Vec::new(), stderr: Vec::new() }
    }

    fn line(&self, step: Option<usize>, stream: LogStream, text: &[u8]) -> LogLine {
        let at_ms = self.shared.clock.wall().as_millis();
        let text = String::from_utf8_lossy(text).into_owned();
        LogLine { at_ms, step: step.map(|step| step as u64), stream, text }
    }

    /// Writes a line of the daemon.
    pub(crate) async fn say(&mut self, step: Option<usize>, text: &str) {
        let lines = text.lines().map(|line| self.line(step, LogStream::Build, line.as_bytes())).collect();
        self.write(lines).await;
    }

    /// Writes what a step has output. A line that is not complete waits for its rest.
    pub(crate) async fn output(&mut self, step: Option<usize>, stream: LogStream, bytes: &[u8]) {
        let mut text = std::mem::take(self.kept(stream));
        text.extend_from_slice(bytes);
        let mut lines = Vec::new();
        let mut rest = text.as_slice();
        loop {
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            match end {
                Some(end) if end <= LINE_BYTES_MAX => {
                    let (line, after) = rest.split_at(end);
                    let is_pair = after.starts_with(b"\r\n");
                    rest = after.get(if is_pair { 2 } else { 1 }..).unwrap_or_default();
                    lines.push(self.line(step, stream, line));
                }
                Some(_) | None if rest.len() > LINE_BYTES_MAX => {
                    let (line, after) = rest.split_at(LINE_BYTES_MAX);
                    rest = after;
                    lines.push(self.line(step, stream, line));
                }
                Some(_) | None => break,
            }
        }
        *self.kept(stream) = rest.to_vec();
        self.write(lines).await;
    }

    /// Writes lines that their step has not completed.
    pub(crate) async fn flush(&mut self, step: Option<usize>) {
        let mut lines = Vec::new();
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            let rest = std::mem::take(self.kept(stream));
            if !rest.is_empty() {
                lines.push(self.line(step, stream, &rest));
            }
        }
        self.write(lines).await;
    }

    /// Makes the log durable.
    pub(crate) async fn sync(&self) {
        if let Err(error) = self.shared.storage.sync_log(&self.id).await {
            tracing::warn!(log = self.id.as_str(), error = %chain(&error), "cannot sync a log");
        }
    }

    fn kept(&mut self, stream: LogStream) -> &mut Vec<u8> {
        match stream {
            LogStream::Stderr => &mut self.stderr,
            LogStream::Stdout | LogStream::Build => &mut self.stdout,
        }
    }

    async fn write(&self, lines: Vec<LogLine>) {
        if lines.is_empty() {
            return;
        }
        let _turn = self.turn.lock().await;
        if let Err(error) = self.shared.storage.append_log(&self.id, lines).await {
            tracing::warn!(log = self.id.as_str(), error = %chain(&error), "cannot write to a log");
        }
        self.shared.followers.tell(&self.id);
    }
}
