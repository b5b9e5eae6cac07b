//! One agent in a directory of its own. Both are removed when it is dropped.

use std::fs;
use std::future::Future;
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use dorm_agent_client::{Agent, ExitStatus, GuestPath, GuestString, Offsets, Output, OutputStream, ProcessSpec};
use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Sandbox {
    pub(crate) agent: Agent,
    pub(crate) host: UnixStream,
    directory: TempDir,
    child: Child,
}

impl Sandbox {
    pub(crate) async fn new() -> Self {
        let directory = TempDir::with_prefix("dorm-agent-").unwrap();
        let (host, guest) = UnixStream::pair().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_dorm-agent"))
            .args(["stdio", "--root"])
            .arg(directory.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(OwnedFd::from(guest.try_clone().unwrap()))
            .stdout(OwnedFd::from(guest))
            .spawn()
            .unwrap();
        let agent = within(connect(&host)).await.unwrap();
        Self { agent, host, directory, child }
    }

    /// Connects a second host to the same stream, after the first has let go of it: as long as its
    /// tasks read from the stream, they take what is for the second.
    pub(crate) async fn reconnect(self) -> Self {
        self.reconnect_as(1).await
    }

    /// The same, with a host that has another generation.
    pub(crate) async fn reconnect_as(self, generation: u64) -> Self {
        self.agent.close();
        within(async {
            while self.descriptors() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let agent = within(connect_as(&self.host, generation)).await.unwrap();
        let mut new = self;
        new.agent = agent;
        new
    }

    /// How many descriptors of this process are the host's end of the stream.
    fn descriptors(&self) -> usize {
        let stream = fs::read_link(format!("/proc/self/fd/{}", self.host.as_raw_fd())).ok();
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| fs::read_link(entry.path()).ok() == stream).count()
    }

    pub(crate) fn host_path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> GuestPath {
        GuestPath::try_from(self.host_path(name).as_path()).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The resident memory of the agent, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    pub(crate) async fn start(&self, spec: &ProcessSpec) -> u64 {
        within(self.agent.start(spec)).await.unwrap().process
    }

    /// Runs a shell script to its end.
    pub(crate) async fn shell(&self, script: &str) -> Ended {
        let process = self.start(&shell(script)).await;
        within(read_all(self.agent.output(process, Offsets::BEGINNING).await.unwrap())).await
    }
}

pub(crate) async fn connect(host: &UnixStream) -> Result<Agent, dorm_agent_client::AgentError> {
    connect_as(host, 1).await
}

async fn connect_as(host: &UnixStream, generation: u64) -> Result<Agent, dorm_agent_client::AgentError> {
    let stream = host.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    Agent::connect(tokio::net::UnixStream::from_std(stream).unwrap(), generation).await
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // When its input ends, the agent kills the processes it has started.
        let _ = self.host.shutdown(Shutdown::Both);
        if let Ok(ended) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) {
            let patience = Timespec { tv_sec: 120, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the agent did not answer in time")
}

pub(crate) fn text(text: &str) -> GuestString {
    GuestString::try_from(text).unwrap()
}

pub(crate) fn command(arguments: &[&str]) -> ProcessSpec {
    ProcessSpec::new(arguments.iter().map(|argument| text(argument)).collect())
}

pub(crate) fn shell(script: &str) -> ProcessSpec {
    command(&["/bin/sh", "-c", script])
}

/// The output and exit status of a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) lost: u64,
    pub(crate) status: Option<ExitStatus>,
}

impl Ended {
    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

pub(crate) async fn read_all(mut output: OutputStream) -> Ended {
    let mut ended = Ended::default();
    while let Some(piece) = output.next().await {
        match piece.unwrap() {
            Output::Stdout { bytes, .. } => ended.stdout.extend_from_slice(&bytes),
            Output::Stderr { bytes, .. } => ended.stderr.extend_from_slice(&bytes),
            Output::Lost { bytes, .. } => ended.lost += bytes,
            Output::Exited(status) => ended.status = Some(status),
        }
    }
    ended
}

/// Reads until standard output contains a text.
pub(crate) async fn read_until(output: &mut OutputStream, wanted: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match within(output.next()).await.expect("the process ended early").unwrap() {
            Output::Stdout { bytes, .. } => seen.extend_from_slice(&bytes),
            Output::Exited(status) => panic!("ended with {status:?} after {:?}", String::from_utf8_lossy(&seen)),
            Output::Stderr { .. } | Output::Lost { .. } => {}
        }
        let text = String::from_utf8_lossy(&seen);
        if text.contains(wanted) {
            return text.into_owned();
        }
    }
}
