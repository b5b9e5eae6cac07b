//! Steps that are reported over a Unix socket, and continue when the other end answers.
//!
//! ```text
//! daemon ── "pool: capture renamed\n" ──► prover
//!        ◄── one byte: continue ────────────   or SIGKILL
//! ```
//!
//! One step at a time. Without its prover the daemon ends at that step: it was started only for the
//! proof.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use dorm_steps::{AnySteps, Steps, Stopped};
use rustix::process::{Signal, getpid, kill_process};

/// Steps that another process lets continue.
#[derive(Debug)]
pub(crate) struct ReportedSteps(Mutex<UnixStream>);

impl ReportedSteps {
    /// Connects to the listener at `socket`.
    pub(crate) fn to(socket: &Path) -> Result<AnySteps> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {} to report steps", socket.display()))?;
        Ok(Arc::new(Self(Mutex::new(stream))))
    }

    fn ask(&self, step: &str) -> io::Result<()> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(format!("{step}\n").as_bytes())?;
        stream.read_exact(&mut [0])
    }
}

impl Steps for ReportedSteps {
    fn reach(&self, step: &'static str) -> Result<(), Stopped> {
        if self.ask(step).is_err() {
            let _ = kill_process(getpid(), Signal::KILL);
            process::abort();
        }
        Ok(())
    }
}
