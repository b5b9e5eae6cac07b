//! Shutdown of the daemon: what requests it, how long it may take, and what ends the process early.
//!
//! ```text
//! first signal ─► the daemon stops in order ─► exit code 0
//!      ├─ nine tenths of the limit: operations under way are left ─► exit code 6
//!      ├─ the limit: the process ends at any point ─► exit code 6
//!      └─ second signal: the same at once
//! ```
//!
//! A thread with a runtime of its own receives the signals, so that the process ends even if the
//! daemon's threads are blocked. Operations under way are on record, and the next start recovers
//! them.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::exit;

/// Receives requests to shut down.
pub(crate) struct Shutdown {
    asked: CancellationToken,
    limit: Duration,
}

impl Shutdown {
    /// Starts to listen for SIGTERM and SIGINT.
    pub(crate) async fn listen(limit: Duration) -> Result<Self> {
        let asked = CancellationToken::new();
        let (tell, listening) = oneshot::channel();
        let heard = asked.clone();
        std::thread::Builder::new()
            .name("shutdown".to_owned())
            .spawn(move || watch(limit, &heard, tell))
            .context("cannot start the thread that listens for signals")?;
        let listening = listening.await.context("cannot start the thread that listens for signals")?;
        listening.context("cannot listen for SIGTERM and SIGINT")?;
        Ok(Self { asked, limit })
    }

    /// Waits until shutdown is requested. Returns the deadline of the orderly shutdown.
    pub(crate) async fn asked(&self) -> Instant {
        self.asked.cancelled().await;
        Instant::now() + self.limit.mul_f64(0.9)
    }

    /// Returns how long requests in progress may take after shutdown is requested.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(5).min(self.limit / 4)
    }

    /// Ends the process, leaving operations under way to the next start.
    pub(crate) fn leave(under_way: &[String]) -> ! {
        for line in under_way {
            tracing::warn!("left for the next start: {line}");
        }
        end("the daemon ends with work under way")
    }
}

fn watch(limit: Duration, asked: &CancellationToken, tell: oneshot::Sender<io::Result<()>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(tell.send(Err(error))),
    };
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            (Err(error), _) | (_, Err(error)) => return drop(tell.send(Err(error))),
        };
        let _ = tell.send(Ok(()));
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping on {name}, within {} s; a second signal ends the daemon at once", limit.as_secs_f64());
        asked.cancel();
        tokio::select! {
            biased;
            name = next(&mut terminate, &mut interrupt) => end(&format!("the daemon ends at once on a second {name}")),
            () = tokio::time::sleep(limit) => end("the daemon has not stopped within --shutdown-limit and ends"),
        }
    });
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

fn end(why: &str) -> ! {
    tracing::warn!("{why}; the next start recovers what was under way");
    std::process::exit(i32::from(exit::UNFINISHED))
}
