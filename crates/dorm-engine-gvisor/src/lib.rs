//! The engine that runs sandboxes under gVisor (`runsc`), which needs no hardware virtualisation.
//!
//! ```text
//! start, restore ─► boot ─► warm_pool (a container ready?) ─► creation (else create one) ─► control (StartRoot, Restore)
//! save, park, resume ─► save ─► pause ─► control      stop ─► cleanup      sweep, inventory ─► inventory
//! files of a memory image ─► files ─► dorm-memory-image
//!
//! opening ─► trial ─► engine
//! engine ─► inventory, announced ─► filling ─► boot, notices, save, stop ─► pause ─► shared ─► host, runs, warm_pool, expected ─► container
//! ```
//!
//! The engine executes calls and reports results; it makes no decisions. It does not know
//! sandboxes, timeouts, names or snapshots. All its state is in one directory, from which a
//! restarted daemon adopts the containers that still run.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod agents;
mod announced;
mod base;
mod blocking;
mod blocks;
mod boot;
mod builds;
mod bundle;
mod cleanup;
mod container;
mod control;
mod copies;
mod creation;
mod egress;
mod engine;
mod error;
mod expected;
mod files;
mod filling;
mod go_version;
mod held;
mod host;
mod inventory;
mod limits;
mod links;
mod lock;
mod lost;
mod memory_pressure;
mod mounts;
mod no_network;
mod notes;
mod notices;
mod opening;
mod parked_memory;
mod pause;
mod probe;
mod process;
mod release;
mod resize;
mod root;
mod run;
mod said;
mod save;
mod shared;
mod slots;
mod stop;
mod stream;
mod trial;
mod warm_pool;

pub use engine::{Config, GvisorEngine};
pub use go_version::GoVersion;
pub use no_network::NoNetwork;
pub use notes::{NotedRun, noted_runs};
pub use probe::{Probe, probe};
pub use trial::{TrialOutcome, trial_outcome};

/// Reads the files out of the memory image in the directory `image`. Only tests of this crate call
/// this function directly.
///
/// # Errors
/// When the image is invalid, or the sink fails.
#[doc(hidden)]
pub fn read_files(
    image: &std::path::Path,
    sink: &mut dyn dorm_engine::FileSink,
) -> Result<dorm_engine::LeftOut, Box<dyn std::error::Error + Send + Sync>> {
    Ok(files::read(image, dorm_memory_image::FilesLimits::default(), sink)?)
}
