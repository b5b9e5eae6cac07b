//! Writes the log of a build. A line that cannot be written is lost, and the build continues: its
//! record says how it ended.

use std::sync::Arc;

use dorm_lifecycle::BuildId;
use dorm_storage::{LogLine, LogStream};

use crate::error::chain;
use crate::shared::Shared;

/// The longest line; longer ones are divided.
const LINE_BYTES_MAX: usize = 4096;

/// The log of a build.
pub(super) struct Diary {
    shared: Arc<Shared>,
    build: BuildId,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Diary {
    pub(super) fn new(shared: Arc<Shared>, build: BuildId) -> Self {
        Self { shared, build, stdout: Vec::new(), stderr: Vec::new() }
    }

    fn line(&self, step: Option<usize>, stream: LogStream, text: &[u8]) -> LogLine {
        let at_ms = self.shared.clock.wall().as_millis();
        let text = String::from_utf8_lossy(text).into_owned();
        LogLine { at_ms, step: step.map(|step| step as u64), stream, text }
    }

    /// Writes a line of the builder.
    pub(super) async fn say(&mut self, step: Option<usize>, text: &str) {
        let lines = text.lines().map(|line| self.line(step, LogStream::Build, line.as_bytes())).collect();
        self.write(lines).await;
    }

    /// Writes what a step has output. A line that is not complete waits for its rest.
    pub(super) async fn output(&mut self, step: Option<usize>, stream: LogStream, bytes: &[u8]) {
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
    pub(super) async fn flush(&mut self, step: Option<usize>) {
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
    pub(super) async fn sync(&self) {
        if let Err(error) = self.shared.storage.sync_build_log(&self.build).await {
            tracing::warn!(build = %self.build, error = %chain(&error), "cannot sync the log of a build");
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
        if let Err(error) = self.shared.storage.append_build_log(&self.build, lines).await {
            tracing::warn!(build = %self.build, error = %chain(&error), "cannot write to the log of a build");
        }
        self.shared.builds.tell(&self.build);
    }
}
