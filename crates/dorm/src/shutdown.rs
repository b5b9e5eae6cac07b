//! The end of the daemon: when it is asked for, how long it may take, and what cuts it short.
//!
//! ```text
//! first signal ─► the daemon stops in order ─► exit code 0
//!      ├─ nine tenths of the limit: what is under way is left ─► exit code 6
//!      ├─ the limit: the process ends wherever it is ─► exit code 6
//!      └─ second signal: the same at once
//! ```
//!
//! Signals are heard by a thread with a runtime of its own, so that nothing that keeps the daemon's threads can keep the
//! process. Whatever is under way is on record, and the next start finds it.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::UNFINISHED;

/// Hears when the daemon is to end.
pub(crate) struct Shutdown {
    asked: CancellationToken,
    limit: Duration,
}

impl Shutdown {
    /// Begins to listen for SIGTERM and SIGINT.
    pub(crate) async fn listen(limit: Duration) -> Result<Self> {
        let asked = CancellationToken::new();
        let (tell, listening) = oneshot::channel();
        let heard = asked.clone();
        std::thread::Builder::new()
            .name("shutdown".to_owned())
            .spawn(move || watch(limit, &heard, tell))
            .context("start the thread that listens for signals")?;
        let listening = listening.await.context("start the thread that listens for signals")?;
        listening.context("listen for SIGTERM and SIGINT")?;
        Ok(Self { asked, limit })
    }

    /// Waits until the daemon is to end. Answers by when it is to have done that in order.
    pub(crate) async fn asked(&self) -> Instant {
        self.asked.cancelled().await;
        Instant::now() + self.limit.mul_f64(0.9)
    }

    /// How long requests in progress may take when the daemon is to end.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(5).min(self.limit / 4)
    }

    /// Ends the process, with what is under way.
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
        tracing::info!("stopping on {name}, within {} s; a second signal ends it at once", limit.as_secs_f64());
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
    tracing::warn!("{why}; the next start finds what was under way");
    std::process::exit(i32::from(UNFINISHED))
}
