//! A program in a sandbox that answers each word with a line.
//!
//! It reads its standard input and answers on its standard output, which the sandbox's agent keeps.
//! This needs no port and no other process, and works after any restart of the daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running program, and how much of its output was read.
#[derive(Clone, Debug)]
pub(crate) struct Dialogue {
    process: u64,
    /// Where its next answer begins.
    at: u64,
}

impl Dialogue {
    /// Starts the shell program in the running sandbox `id`.
    pub(crate) async fn begin(daemon: &Daemon, id: &str, program: &str) -> Result<Self> {
        let asked = json!({ "argv": ["/bin/sh", "-c", program], "stdin": "pipe" });
        let started = daemon.post(&format!("/sandboxes/{id}/processes"), asked).await?;
        Ok(Self { process: started["process"].as_u64().context("a process's handle")?, at: 0 })
    }

    /// Sends a word to the program in sandbox `id`, and reads the line it answers.
    pub(crate) async fn say(&mut self, daemon: &Daemon, id: &str, word: &str) -> Result<String> {
        let path = format!("/sandboxes/{id}/processes/{}", self.process);
        let said = daemon.request(Method::POST, &format!("{path}/stdin")).body(format!("{word}\n"));
        let status = said.timeout(PATIENCE).send().await?.error_for_status()?;
        drop(status);
        let line = tokio::time::timeout(PATIENCE, self.line(daemon, &path)).await.context("no answer in time")??;
        self.at += line.len() as u64 + 1;
        Ok(line)
    }

    async fn line(&self, daemon: &Daemon, path: &str) -> Result<String> {
        let asked = daemon.request(Method::GET, &format!("{path}/output?stdout={}", self.at));
        let mut answer = asked.send().await?.error_for_status()?;
        let (mut events, mut line) = (String::new(), String::new());
        while let Some(chunk) = answer.chunk().await? {
            events.push_str(&String::from_utf8_lossy(&chunk));
            while let Some(end) = events.find("\n\n") {
                let event: String = events.drain(..end + 2).collect();
                let Some(data) = event.lines().find_map(|line| line.strip_prefix("data:")) else { continue };
                let data: Value = serde_json::from_str(data.trim()).context("read an event")?;
                if event.contains("event: exit") || event.contains("event: lost") || event.contains("event: error") {
                    bail!("instead of an answer: {}", event.trim());
                }
                line.push_str(data["data"].as_str().unwrap_or_default());
                if let Some(end) = line.find('\n') {
                    line.truncate(end);
                    return Ok(line);
                }
            }
        }
        bail!("its output ended")
    }
}
