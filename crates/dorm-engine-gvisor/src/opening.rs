//! Opens the engine: chooses the build for new sandboxes among those that the configuration names.

use std::sync::Arc;

use dorm_engine::{EngineError, RestoredMemory};

use crate::builds::Builds;
use crate::engine::{Config, GvisorEngine};
use crate::error::{chain, unusable};
use crate::probe::Probe;
use crate::trial;

/// Why a stock build leaves no memory in images.
const STOCK: &str = "this build of runsc reads all memory before a guest runs";

impl GvisorEngine {
    /// Opens the engine: chooses a build, checks the host and adopts the runs of an earlier daemon
    /// without changing them. The process becomes the reaper of its orphans, so that ended
    /// sandboxes leave no zombies.
    ///
    /// # Errors
    /// [`EngineError::Unusable`], with a hint how to fix the host.
    pub async fn open(config: Config) -> Result<Arc<Self>, EngineError> {
        let Choice { builds, found, memory } = choose(&config).await?;
        if found.format.is_none() {
            tracing::warn!(
                build = found.build,
                "the format of this build's memory images is not known: filesystem snapshots may fail, and only this \
                 build can restore what it saves"
            );
        }
        if let Err(error) = trial::clear(&config, (&builds, &found)).await {
            tracing::warn!(error = %chain(&error), "cannot remove what an interrupted trial of runsc has left; the next start tries it again");
        }
        let capabilities = builds.capabilities(&found, memory);
        Self::assemble(config, builds, capabilities).await
    }
}

/// The builds of an engine, the one for new sandboxes first.
struct Choice {
    builds: Builds,
    /// The facts about the first.
    found: Probe,
    memory: RestoredMemory,
}

/// Takes the first program that can be used here. Our own build must also pass its trial.
async fn choose(config: &Config) -> Result<Choice, EngineError> {
    let mut last = None;
    for runsc in &config.runsc {
        let (program, also) = (runsc.clone(), config.runsc_also.clone());
        let opened = tokio::task::spawn_blocking(move || Builds::open(&program, &also)).await;
        let opened = opened.map_err(|source| unusable("this is a bug; please report it", source))?;
        let refused = match opened {
            Ok((builds, found)) if !found.is_ours() => {
                let reason = last.map_or_else(|| STOCK.to_owned(), |error: EngineError| error.chain());
                return Ok(Choice { builds, found, memory: RestoredMemory::Copied { reason } });
            }
            Ok((builds, found)) => match trial::succeeds(config, (&builds, &found)).await {
                Ok(()) => return Ok(Choice { builds, found, memory: RestoredMemory::Mapped }),
                Err(error) => unusable(format!("use the stock runsc instead of {}", runsc.display()), error),
            },
            Err(error) => error,
        };
        tracing::warn!(runsc = %runsc.display(), error = %chain(&refused), "cannot use a build of runsc");
        last = Some(refused);
    }
    Err(last.unwrap_or_else(|| unusable("pass the path of runsc with --runsc", std::io::Error::other("none is named"))))
}
