//! The other end of `dorm serve --steps`: it numbers the steps of one operation, and acts at the
//! chosen one. It does not know the meaning of steps.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Serialize, Serializer};

/// One step of an operation: its name, and its occurrence in that operation, counted from 1.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Step {
    name: String,
    time: u32,
}

impl Step {
    /// The moment at which the caller has its answer; no daemon reports this step.
    pub(crate) fn answered() -> Self {
        Self::first("answered")
    }

    /// The first occurrence of the step `name`.
    pub(crate) fn first(name: &str) -> Self {
        Self::nth(name, 1)
    }

    /// Its name, which is the same for each occurrence.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Occurrence `time` of the step `name`, counted from 1.
    pub(crate) fn nth(name: &str, time: u32) -> Self {
        Self { name: name.to_owned(), time }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time {
            1 => f.write_str(&self.name),
            time => write!(f, "{} ({time})", self.name),
        }
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The action at the chosen step.
pub(crate) enum Act {
    /// Kill the daemon there.
    Kill,
    /// Do something else to its host first, then kill the daemon.
    KillAfter(Box<dyn FnOnce() + Send>),
    /// Do something else to its host, and let the daemon continue.
    Meanwhile(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Watch {
    seen: Vec<Step>,
    times: BTreeMap<String, u32>,
    chosen: Option<(Step, Act)>,
    hit: bool,
    last: Option<Instant>,
}

struct Shared {
    watch: Mutex<Watch>,
    hit: Condvar,
}

impl Shared {
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the daemon at each step, for as long as the process lives.
pub(crate) struct Watcher {
    socket: PathBuf,
    shared: Arc<Shared>,
}

impl Watcher {
    /// Listens at `socket`.
    pub(crate) fn listen(socket: PathBuf) -> Result<Self> {
        let listener = UnixListener::bind(&socket).with_context(|| format!("listen at {}", socket.display()))?;
        let shared = Arc::new(Shared { watch: Mutex::default(), hit: Condvar::new() });
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let shared = theirs.clone();
                std::thread::spawn(move || {
                    // It ends with its daemon.
                    let _ = attend(&stream, &shared);
                });
            }
        });
        Ok(Self { socket, shared })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts to number steps anew, and acts at the chosen step if it comes.
    pub(crate) fn begin(&self, chosen: Option<(Step, Act)>) {
        *self.shared.watch() = Watch { chosen, ..Watch::default() };
    }

    /// Ends the numbering; returns the steps, and whether the chosen one came.
    pub(crate) fn end(&self) -> (Vec<Step>, bool) {
        let watch = std::mem::take(&mut *self.shared.watch());
        (watch.seen, watch.hit)
    }

    /// How often the step `name` has come so far.
    pub(crate) fn times(&self, name: &str) -> u32 {
        self.shared.watch().times.get(name).copied().unwrap_or_default()
    }

    /// Waits until the chosen step has come, or no step has come for `quiet`. Returns whether it
    /// has come.
    pub(crate) fn hit_or_quiet(&self, quiet: Duration) -> bool {
        let begun = Instant::now();
        let mut watch = self.shared.watch();
        loop {
            let silent = watch.last.unwrap_or(begun).max(begun).elapsed();
            if watch.hit || silent >= quiet {
                return watch.hit;
            }
            let waited = self.shared.hit.wait_timeout(watch, quiet - silent);
            watch = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn attend(stream: &UnixStream, shared: &Shared) -> Result<()> {
    let peer = socket_peercred(stream)?.pid;
    for name in BufReader::new(stream).lines() {
        match shared.reached(name?) {
            Some(Act::Kill) => return kill(peer, shared),
            Some(Act::KillAfter(act)) => {
                act();
                return kill(peer, shared);
            }
            Some(Act::Meanwhile(act)) => {
                act();
                shared.is_hit();
            }
            None => {}
        }
        (&mut &*stream).write_all(b".")?;
    }
    Ok(())
}

fn kill(peer: Pid, shared: &Shared) -> Result<()> {
    // The hit is noted before anyone can meet the dead daemon.
    shared.is_hit();
    kill_process(peer, Signal::KILL).context("kill the daemon")
}

impl Shared {
    fn reached(&self, name: String) -> Option<Act> {
        let mut watch = self.watch();
        let time = watch.times.entry(name.clone()).or_default();
        *time += 1;
        let step = Step { time: *time, name };
        watch.last = Some(Instant::now());
        watch.seen.push(step.clone());
        let (_, act) = watch.chosen.take_if(|(chosen, _)| *chosen == step)?;
        Some(act)
    }

    fn is_hit(&self) {
        self.watch().hit = true;
        self.hit.notify_all();
    }
}
