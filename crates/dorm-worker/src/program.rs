//! Starts workers, reads their output, and ends them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::child::NAME;
use crate::error::WorkerError;
use crate::limits::Limits;
use crate::message::legible;

/// How long a worker that has closed its output may take to exit.
const ENDING: Duration = Duration::from_secs(5);
/// How much of a worker's standard error is kept.
const SAID_MAX: u64 = 4 << 10;
/// Causes fewer context switches than the default pipe size of 64 KiB.
const PIPE_BYTES: usize = 1 << 20;

/// The program that workers execute.
#[derive(Clone, Debug)]
pub struct Program {
    executable: PathBuf,
    arguments: Vec<OsString>,
    user: u32,
}

impl Program {
    /// The running program, regardless of what happened to its file, as `dorm worker`.
    pub fn this(user: u32) -> Self {
        Self::new(Path::new("/proc/self/exe"), &[NAME], user)
    }

    /// Workers execute `executable` with these arguments, followed by those that [`crate::run`]
    /// takes. `user` is the ID of a user and a group that own nothing.
    pub fn new(executable: &Path, arguments: &[&str], user: u32) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self { executable: executable.to_owned(), arguments, user }
    }

    /// Starts a worker. It has no environment, and no descriptors except `input`, its output and
    /// its standard error.
    ///
    /// # Errors
    /// [`WorkerError::Spawn`].
    pub fn spawn(
        &self,
        role: &str,
        arguments: &[&str],
        limits: Limits,
        (input, output): (Stdio, Stdio),
    ) -> Result<Worker, WorkerError> {
        let failed = |source| WorkerError::Spawn { role: role.to_owned(), source };
        let limits_text = serde_json::to_string(&limits).map_err(|error| failed(error.into()))?;
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments).args([role, &limits_text, &self.user.to_string()]).args(arguments);
        command.env_clear().current_dir("/").stdin(input).stdout(output).stderr(Stdio::piped());
        let child = command.spawn().map_err(failed)?;
        for pipe in [child.stdin.as_ref().map(AsFd::as_fd), child.stdout.as_ref().map(AsFd::as_fd)] {
            // If the system does not allow it, the worker is only slower.
            let _ = pipe.map(|pipe| rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES));
        }
        Ok(Worker { role: role.to_owned(), child, silence: Duration::from_secs(limits.silence_seconds) })
    }
}

/// A running worker. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    role: String,
    child: Child,
    silence: Duration,
}

impl Worker {
    /// Returns its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its input, if that is a pipe.
    pub fn input(&mut self) -> Option<File> {
        self.child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)))
    }

    /// Returns its output, if that is a pipe. Reading waits no longer than the worker may be
    /// silent.
    pub fn output(&mut self) -> Option<Output> {
        let pipe = self.child.stdout.take()?;
        Some(Output { pipe: File::from(OwnedFd::from(pipe)), silence: self.silence })
    }

    /// Returns its output as the input of another process.
    pub fn output_for_another(&mut self) -> Option<Stdio> {
        self.child.stdout.take().map(Stdio::from)
    }

    /// Waits a moment for the exit of a worker whose output is no longer read.
    ///
    /// # Errors
    /// [`WorkerError::Ended`] if it has failed, or does not exit.
    pub fn finish(mut self) -> Result<(), WorkerError> {
        self.child.stdin = None;
        self.child.stdout = None;
        let (how, said) = self.end();
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            _ => Err(WorkerError::Ended { role: self.role.clone(), how, said }),
        }
    }

    /// Ends the worker, and returns why its output ended with `error`.
    pub fn failed(mut self, error: io::Error) -> WorkerError {
        self.explain(error)
    }

    /// Returns why its output ended with `error`.
    pub fn explain(&mut self, error: io::Error) -> WorkerError {
        let role = self.role.clone();
        match error.kind() {
            io::ErrorKind::TimedOut => WorkerError::Silent { role, seconds: self.silence.as_secs() },
            io::ErrorKind::InvalidData => WorkerError::Message { role, what: error.to_string() },
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                let (how, said) = self.end();
                WorkerError::Ended { role, how, said }
            }
            _ => WorkerError::Pipe { operation: "read from", role, source: error },
        }
    }

    /// Returns the error for a message that this worker never sends.
    pub fn refused(&self, what: impl Into<String>) -> WorkerError {
        WorkerError::Message { role: self.role.clone(), what: what.into() }
    }

    /// Returns how it exited, or that it did not, and its standard error.
    fn end(&mut self) -> (String, String) {
        let ended = Pid::from_raw(self.child.id().cast_signed())
            .and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok())
            .is_none_or(|process| can_read(&process, ENDING).unwrap_or(false));
        if !ended {
            return ("it closed its output but did not exit".to_owned(), String::new());
        }
        let how = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => format!("its exit status is unknown: {error}"),
        };
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            // The worker is gone, and no other process has the pipe: this does not block.
            let _ = stderr.take(SAID_MAX).read_to_end(&mut said);
        }
        (how, legible(&said))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker that has already exited is only reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a worker.
#[derive(Debug)]
pub struct Output {
    pipe: File,
    silence: Duration,
}

impl Read for Output {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !can_read(&self.pipe, self.silence)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.pipe.read(into)
    }
}

fn can_read(what: impl AsFd, within: Duration) -> io::Result<bool> {
    let seconds = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: within.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::new(&what, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
