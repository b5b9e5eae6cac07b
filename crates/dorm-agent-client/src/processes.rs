//! Processes in the sandbox.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use dorm_agent_proto::{
    Answer, End, Event, ExitStatus, Offsets, ProcessKey, ProcessSpec, ProcessStarted, ProcessStatus, Request, Signal,
    Target, TerminalSize,
};

use crate::agent::{Agent, wrong};
use crate::channel::Channel;
use crate::error::AgentError;
use crate::output::OutputStream;
use crate::page::{Listed, PAGE_MAX, Page, collect};

impl Agent {
    /// Starts a process. It belongs to the sandbox, not to this connection, and outlives it.
    ///
    /// # Errors
    /// [`AgentError::CommandNotFound`], [`AgentError::CannotExecute`], [`AgentError::NoUser`], and
    /// [`AgentError::NotFound`] or [`AgentError::NotADirectory`] for its directory.
    pub async fn start(&self, spec: &ProcessSpec) -> Result<ProcessStarted, AgentError> {
        let (answer, channel) = self.ask(&Request::Start(spec.clone())).await?;
        match answer {
            Answer::Started(started) => Ok(started),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Starts a process as [`Agent::start`] does, and has it and its process group killed when it
    /// has run for some time. Time during which the sandbox is suspended does not count. The agent
    /// enforces the limit: it outlives this connection.
    ///
    /// # Errors
    /// Those of [`Agent::start`], and [`AgentError::Older`].
    pub async fn start_within(&self, spec: &ProcessSpec, limit: Duration) -> Result<ProcessStarted, AgentError> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let (answer, channel) = self.ask(&Request::StartWithin { spec: spec.clone(), limit_ms }).await?;
        match answer {
            Answer::Started(started) => Ok(started),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Starts a process whose input is `input` and then ends, and has it killed at a limit as
    /// [`Agent::start_within`] does if it has one. The agent keeps the input until it is read: it
    /// outlives this connection.
    ///
    /// # Errors
    /// Those of [`Agent::start`], and [`AgentError::Older`].
    pub async fn start_with_input(
        &self,
        spec: &ProcessSpec,
        input: &[u8],
        limit: Option<Duration>,
    ) -> Result<ProcessStarted, AgentError> {
        let limit_ms = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let request = Request::StartWithInput { spec: spec.clone(), input: input.to_vec(), limit_ms };
        let (answer, channel) = self.ask(&request).await?;
        match answer {
            Answer::Started(started) => Ok(started),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Returns the processes started by [`Agent::start`], oldest first: all live ones, and about
    /// 4,000 that have ended.
    ///
    /// # Errors
    /// [`AgentError::TooMany`], [`AgentError::Closed`].
    pub async fn processes(&self) -> Result<Vec<ProcessStatus>, AgentError> {
        let Page { items, more, .. } = self.processes_after(None, PAGE_MAX).await?;
        if more { Err(AgentError::TooMany(items.len())) } else { Ok(items) }
    }

    /// Returns a page of those processes, oldest first: at most `most`, and at most [`PAGE_MAX`],
    /// of those after the handle `after`.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn processes_after(&self, after: Option<u64>, most: usize) -> Result<Page<ProcessStatus>, AgentError> {
        self.processes_that(after, most, |_| true).await
    }

    /// Returns a page as [`Agent::processes_after`] does, of those processes that `is_wanted`.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn processes_that(
        &self,
        after: Option<u64>,
        most: usize,
        is_wanted: impl Fn(&ProcessStatus) -> bool,
    ) -> Result<Page<ProcessStatus>, AgentError> {
        self.some_processes(most, |status| after.is_none_or(|after| status.process > after) && is_wanted(status)).await
    }

    /// Returns the processes that have a key, oldest first.
    ///
    /// # Errors
    /// [`AgentError::TooMany`], [`AgentError::Closed`].
    pub async fn find_processes(&self, key: ProcessKey) -> Result<Vec<ProcessStatus>, AgentError> {
        let has_key = |status: &ProcessStatus| match &key {
            ProcessKey::Pid(pid) => status.pid == *pid,
            ProcessKey::Label(label) => status.label.as_ref() == Some(label),
        };
        let Page { items, more, .. } = match self.follow(&Request::FindProcesses { key: key.clone() }).await {
            Ok(channel) => collect_processes(channel, PAGE_MAX, has_key).await?,
            // It can list all of them.
            Err(AgentError::Older { .. }) => self.some_processes(PAGE_MAX, has_key).await?,
            Err(error) => return Err(error),
        };
        if more { Err(AgentError::TooMany(items.len())) } else { Ok(items) }
    }

    /// Returns one of those processes.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn process(&self, process: u64) -> Result<ProcessStatus, AgentError> {
        let channel = match self.follow(&Request::Process { process }).await {
            // It can list all of them.
            Err(AgentError::Older { .. }) => self.follow(&Request::Processes).await?,
            channel => channel?,
        };
        let found = collect_processes(channel, 1, |other| process == other.process).await?;
        found.items.into_iter().next().ok_or(AgentError::NoProcess(process))
    }

    async fn some_processes(
        &self,
        most: usize,
        is_wanted: impl Fn(&ProcessStatus) -> bool,
    ) -> Result<Page<ProcessStatus>, AgentError> {
        collect_processes(self.follow(&Request::Processes).await?, most, is_wanted).await
    }

    /// Follows a process's output from an offset until the process ends, both streams in the order
    /// in which the agent read them. An agent of an earlier release tells no times, and may send
    /// what it kept of one stream before the other.
    ///
    /// If the reader is slower, the process waits for it; if the reader stalls for some seconds, it
    /// loses output, and the stream reports how much.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::TooManyOpen`].
    pub async fn output(&self, process: u64, from: Offsets) -> Result<OutputStream, AgentError> {
        let channel = match self.follow(&Request::TimedOutput { process, from }).await {
            Err(AgentError::Older { .. }) => self.follow(&Request::Output { process, from }).await?,
            channel => channel?,
        };
        Ok(OutputStream::new(channel))
    }

    /// Writes to a process's standard input; returns when the sandbox's kernel has accepted all
    /// bytes. The bytes of one call are not interleaved with others. A dropped call may have
    /// written some of them.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::InputClosed`].
    pub async fn write_stdin(&self, process: u64, bytes: Bytes) -> Result<(), AgentError> {
        let mut channel = self.open(&Request::WriteStdin { process })?;
        match send_all(&mut channel, &bytes).await? {
            Some(Answer::Done) => return Ok(()),
            Some(other) => return Err(wrong(&channel, &other)),
            None => channel.send_end(&End::Complete),
        }
        match channel.answer().await? {
            Answer::Done => Ok(()),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Closes a process's standard input after everything written before; on a terminal, sends the
    /// end-of-file character. Closing it twice succeeds.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`].
    pub async fn close_stdin(&self, process: u64) -> Result<(), AgentError> {
        self.do_it(&Request::CloseStdin { process }).await
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], also if the process has ended.
    pub async fn signal(&self, process: u64, signal: Signal, target: Target) -> Result<(), AgentError> {
        self.do_it(&Request::Signal { process, signal, target }).await
    }

    /// Kills a process and every process that descends from it, also in other groups and sessions,
    /// and also if the process itself has ended. Returns how many processes were killed.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::Older`]; [`AgentError::Other`] if they start new
    /// ones too fast.
    pub async fn kill_tree(&self, process: u64) -> Result<u32, AgentError> {
        let (answer, channel) = self.ask(&Request::KillTree { process }).await?;
        match answer {
            Answer::Killed(killed) => Ok(killed),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Changes the size of a process's terminal.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`], [`AgentError::NoTerminal`].
    pub async fn resize(&self, process: u64, rows: u16, columns: u16) -> Result<(), AgentError> {
        self.do_it(&Request::Resize { process, size: TerminalSize { rows, columns } }).await
    }

    /// Waits until a process has ended; returns at once if it has. All its output can then be read
    /// from [`Agent::output`], except for what a slow reader still holds up.
    ///
    /// # Errors
    /// [`AgentError::NoProcess`] if it never existed or is forgotten.
    pub async fn wait(&self, process: u64) -> Result<ExitStatus, AgentError> {
        let (answer, channel) = self.ask(&Request::Wait { process }).await?;
        match answer {
            Answer::Exited(status) => Ok(status),
            other => Err(wrong(&channel, &other)),
        }
    }
}

async fn collect_processes(
    channel: Channel,
    most: usize,
    is_wanted: impl Fn(&ProcessStatus) -> bool,
) -> Result<Page<ProcessStatus>, AgentError> {
    let process = |event| match event {
        Event::Process(status) => Listed::when(is_wanted(&status), status),
        _ => Listed::Stranger,
    };
    collect(channel, most, process).await
}

/// Sends bytes as credit arrives. An answer that arrives meanwhile ends it: the agent accepts no
/// more.
pub(crate) async fn send_all(channel: &mut Channel, bytes: &[u8]) -> Result<Option<Answer>, AgentError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let sent = {
            let sender = channel.sender();
            tokio::select! {
                biased;
                answer = channel.answer() => return answer.map(Some),
                sent = poll_fn(|context| sender.poll_send(context, rest)) => sent,
            }
        };
        match sent {
            Some(sent) => rest = &rest[sent..],
            None => return channel.answer().await.map(Some),
        }
    }
    Ok(None)
}
