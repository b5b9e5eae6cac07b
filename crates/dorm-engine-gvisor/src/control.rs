//! The control socket of a running sandbox. It is what `runsc` itself uses, without the 40 ms that
//! a `runsc` process takes.
//!
//! Each call uses one connection and sends one JSON object each way; descriptors travel with the
//! request. A frozen sandbox does not answer. This module does not know when a call is safe.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dorm_memory_image::{AGENT_MOUNT, TMP_OPTIONS};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::GvisorError;

/// The time limit of calls that should take milliseconds; the host may be very busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long a task may take to run after SIGCONT.
const ROUSED: Duration = Duration::from_millis(5);
/// A sandbox that is not stopped answers within this time.
const PROMPT: Duration = Duration::from_secs(2);
/// The maximum length of the path in a socket address.
const ADDRESS_BYTES_MAX: usize = 107;
/// The agent's process ID in every sandbox.
pub(crate) const AGENT: u32 = 1;
/// No limit, for calls whose outcome must be known. A sandbox whose process is stopped executes
/// them whenever it continues: abandoning a call and making another would pause the sandbox twice,
/// or kill it. Such calls end when the sandbox's process ends; their callers decide how long to
/// wait.
const UNTIL_ANSWERED: Option<Duration> = None;

/// The control socket of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

/// The files of a memory image, in the order the sandbox expects: its own, then its map, and to
/// restore it also the pages of its base.
#[derive(Debug)]
pub(crate) struct ImageFiles(pub(crate) Vec<OwnedFd>);

#[derive(Deserialize)]
struct Answer {
    success: bool,
    #[serde(default)]
    err: String,
    #[serde(default)]
    result: Value,
}

impl Control {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Pauses the guest. Pauses nest: each needs a [`Control::resume`] of its own.
    pub(crate) async fn pause(&self) -> Result<(), GvisorError> {
        self.call("containerManager.Pause", Value::Null, Vec::new(), UNTIL_ANSWERED).await.map(drop)
    }

    /// Undoes one pause. **Kills the sandbox if the guest is not paused** (observed with 20240729).
    pub(crate) async fn resume(&self) -> Result<(), GvisorError> {
        self.call("containerManager.Resume", Value::Null, Vec::new(), UNTIL_ANSWERED).await.map(drop)
    }

    /// Starts the container's first process.
    pub(crate) async fn start(&self, id: &str) -> Result<(), GvisorError> {
        self.call("containerManager.StartRoot", json!(id), Vec::new(), Some(SOON)).await.map(drop)
    }

    /// Configures the network links of an empty container; `packets` is the raw socket of the
    /// external link.
    pub(crate) async fn links(&self, links: Value, packets: Option<OwnedFd>) -> Result<(), GvisorError> {
        self.call("Network.CreateLinksAndRoutes", links, packets.into_iter().collect(), Some(SOON)).await.map(drop)
    }

    /// Writes the guest's memory into `files`. A paused guest stays paused, a running one keeps
    /// running. If there are `copies`, the host copies the pages: the sandbox says on that socket
    /// what comes where. Only our later builds know that.
    pub(crate) async fn checkpoint(&self, files: ImageFiles, copies: Option<OwnedFd>) -> Result<(), GvisorError> {
        let mut metadata = json!({"compression": "none"});
        if copies.is_some() {
            metadata["dorm-copies"] = json!("");
        }
        let files = ImageFiles(files.0.into_iter().chain(copies).collect());
        let argument = json!({
            "key": null,
            "metadata": metadata,
            "MemoryFileSaveOpts": {"ExcludeCommittedZeroPages": false},
            "have_pages_file": true,
            "Resume": true,
        });
        self.call("containerManager.Checkpoint", argument, files.0, UNTIL_ANSWERED).await.map(drop)
    }

    /// Has a paused guest map its memory from `pages`, to which it was saved since it was paused,
    /// and releases about `limit` bytes. Returns how many bytes are left. Only our later builds can
    /// do it.
    pub(crate) async fn map_saved(&self, pages: OwnedFd, limit: u64) -> Result<u64, GvisorError> {
        let argument = json!({"Limit": limit});
        let left = self.call("containerManager.MapSaved", argument, vec![pages], Some(SOON)).await?;
        Ok(left.as_u64().unwrap_or_default())
    }

    /// Writes the files that the guest has changed: a list into the first one, and the content into
    /// the second one. If there is a third one, it is the second one with direct I/O, and gets much
    /// of the content. A paused guest stays paused. Only our later builds can do it.
    pub(crate) async fn save_files(&self, files: ImageFiles) -> Result<(), GvisorError> {
        // The sandbox searches the mounts for these, since the guest may have changed them.
        let metadata = json!({"dorm-files-tmp": TMP_OPTIONS.join(","), "dorm-files-agent": AGENT_MOUNT});
        let argument = json!({"key": null, "metadata": metadata, "have_pages_file": false, "Resume": true});
        self.call("containerManager.Checkpoint", argument, files.0, UNTIL_ANSWERED).await.map(drop)
    }

    /// Restores the memory in `files` into an empty container. The guest runs when this returns.
    pub(crate) async fn restore(&self, files: ImageFiles) -> Result<(), GvisorError> {
        let argument = json!({"HavePagesFile": true, "HaveDeviceFile": false});
        self.call("containerManager.Restore", argument, files.0, UNTIL_ANSWERED).await.map(drop)
    }

    /// Returns the guest's processes in ascending order, the agent first.
    pub(crate) async fn processes(&self, id: &str) -> Result<Vec<u32>, GvisorError> {
        let list = self.call("containerManager.Processes", json!(id), Vec::new(), Some(SOON)).await?;
        let pids = list.as_array().into_iter().flatten().filter_map(|process| process["pid"].as_u64());
        let mut pids: Vec<_> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// Sends a signal to the guest's process `pid`.
    pub(crate) async fn signal(&self, id: &str, pid: u32, signal: i32) -> Result<(), GvisorError> {
        let argument = json!({"CID": id, "Signo": signal, "PID": pid, "Mode": 0});
        self.call("containerManager.Signal", argument, Vec::new(), Some(SOON)).await.map(drop)
    }

    /// Sends SIGCONT to the agent, in case a signal from inside has stopped it. A paused guest
    /// stays paused. Otherwise the agent ignores the signal.
    pub(crate) async fn rouse(&self, id: &str, limit: Duration) -> Result<(), GvisorError> {
        let argument = json!({"CID": id, "Signo": libc::SIGCONT, "PID": AGENT, "Mode": 0});
        self.call("containerManager.Signal", argument, Vec::new(), Some(limit)).await.map(drop)
    }

    /// Returns whether the guest is paused, that is, whether all its tasks wait to be resumed. A
    /// late answer is discarded, because a call of an earlier daemon may have been executed at the
    /// same time.
    pub(crate) async fn is_paused(&self, id: &str, limit: Duration) -> Result<bool, GvisorError> {
        // Tasks that a signal has stopped look like paused ones. With SIGCONT, a task of the agent
        // runs unless the guest is paused.
        self.rouse(id, limit).await?;
        loop {
            tokio::time::sleep(ROUSED).await;
            let asked = Instant::now();
            let stacks = self.call("debug.Stacks", Value::Null, Vec::new(), Some(limit)).await?;
            if asked.elapsed() < PROMPT {
                return Ok(stand_still(stacks.as_str().unwrap_or_default()));
            }
        }
    }

    async fn call(
        &self,
        method: &'static str,
        argument: Value,
        files: Vec<OwnedFd>,
        limit: Option<Duration>,
    ) -> Result<Value, GvisorError> {
        let this = self.clone();
        let ask = move || this.ask(method, &argument, &files, limit);
        let answer = match limit {
            Some(_) => tokio::task::spawn_blocking(ask).await?,
            None => on_its_own_thread(ask).await,
        };
        let answer = answer.map_err(|source| GvisorError::Control { method, source })?;
        if answer.success { Ok(answer.result) } else { Err(GvisorError::Refused { method, said: answer.err }) }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let bytes = self.socket.as_os_str().as_bytes();
        match bytes.strip_prefix(b"\0") {
            Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?),
            None if bytes.len() > ADDRESS_BYTES_MAX => connect_below(&self.socket),
            None => UnixStream::connect(&self.socket),
        }
    }

    fn ask(&self, method: &str, argument: &Value, files: &[OwnedFd], limit: Option<Duration>) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        stream.set_write_timeout(limit)?;
        let question = serde_json::to_vec(&json!({"method": method, "arg": argument}))?;
        send(&stream, &question, files)?;
        let end = limit.map(|limit| Instant::now() + limit);
        let mut answer = Vec::new();
        let mut buffer = vec![0_u8; 64 << 10];
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(left)?;
            let read = match stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            };
            answer.extend_from_slice(&buffer[..read]);
            // The answer has no terminator: it is complete when it parses.
            match serde_json::from_slice::<Answer>(&answer) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_eof() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Runs a call that may block as long as the sandbox exists. The runtime waits for its own threads
/// on shutdown, and a daemon must not wait for a stopped sandbox.
async fn on_its_own_thread<T: Send + 'static>(ask: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("control".to_owned()).spawn(move || drop(sender.send(ask())))?;
    answer.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

fn send(stream: &UnixStream, question: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("too many file descriptors for one call"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(question)], &mut control, SendFlags::NOSIGNAL)?;
    io::Write::write_all(&mut &*stream, &question[sent..])
}

/// Parses the sentry's goroutines: each guest task is one, and waits in `doStop` while the guest is
/// paused.
fn stand_still(stacks: &str) -> bool {
    let tasks = stacks.split("\n\n").filter(|one| one.contains("kernel.(*Task).run("));
    let mut any = false;
    for task in tasks {
        any = true;
        if !task.contains("kernel.(*Task).doStop(") {
            return false;
        }
    }
    any
}

/// Connects to a socket whose path is too long for an address, by way of its directory.
#[allow(clippy::disallowed_methods, reason = "calls block, on threads that may")]
fn connect_below(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())?;
    UnixStream::connect(Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_stands_still_when_all_its_tasks_do() {
        let stopped = "goroutine 1 [running]:\nx.kernel.(*Task).doStop(0x1)\nx.kernel.(*Task).run(0x1)\n";
        let moving = "goroutine 2 [running]:\nx.platform.Switch()\nx.kernel.(*Task).run(0x1)\n";
        let other = "goroutine 3 [select]:\nmain.main()\n";
        assert!(stand_still(&format!("{stopped}\n{other}")));
        assert!(!stand_still(&format!("{stopped}\n{moving}\n{other}")));
        assert!(!stand_still(other));
    }
}
