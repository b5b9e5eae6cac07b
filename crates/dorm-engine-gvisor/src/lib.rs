//! The engine that runs sandboxes under gVisor (`runsc`), which needs no hardware virtualisation.
//!
//! ```text
//! start, restore ─► boot ─► warm_pool (a container ready?) ─► container (else create one) ─► control (StartRoot, Restore)
//! capture, park, go_on ─► capture ─► control, cgroup      stop ─► cleanup      sweep, inventory ─► inventory
//! files of a memory image ─► files
//! ```
//!
//! The engine executes calls and reports results; it makes no decisions. It does not know
//! sandboxes, timeouts, names or snapshots. All its state is in one directory, from which a
//! restarted daemon adopts the containers that still run.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod boot;
mod builds;
mod bundle;
mod capture;
pub mod cgroup;
mod cleanup;
mod control;
pub use dorm_disk as disk;
mod container;
mod engine;
mod error;
mod files;
mod inventory;
mod links;
mod lost;
mod notes;
mod notices;
mod probe;
mod process;
mod release;
mod relief;
mod root;
mod run;
mod said;
mod slots;
mod stream;
mod warm_pool;

pub use engine::{Config, GvisorEngine};
#[cfg(any(test, feature = "fuzzing"))]
pub use files::fuzzing;
pub use files::{FilesLimits, READERS};
pub use notes::{NotedRun, noted_runs};
pub use probe::{Probe, probe};

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
    Ok(files::read(image, FilesLimits::default(), sink)?)
}
