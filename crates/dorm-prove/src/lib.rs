//! The proof that nothing is lost, on the host it is run on and with its real engine.
//!
//! ```text
//! a daemon of its own ── each step of each operation ──► asked here (steps) ──► passed on, or the daemon is killed
//!        │ killed                                                                        │
//!        └──── another one on the same data ──► settled? ──► records = host? ──► every sandbox asked (probe)
//! ```
//!
//! It is a client like any other: it knows the API, the files on disk and the kernel's state, but
//! not the daemon's own view. It does not know the steps of an operation; it learns them by
//! watching it once.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod damage;
mod dialogue;
mod diary;
mod full_disk;
mod host;
mod layered_image;
mod operation;
mod power;
mod probe;
mod proof;
mod report;
mod scenario;
mod session;
mod silent;
mod small_disk;
mod soak;
mod steps;
mod walks;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use proof::{names, prove};
pub use report::{Finding, Kind, Report, Row};
pub use silent::{Silenced, silence};
pub use soak::{Soaked, Soakings, soak};
pub use walks::{Stumble, Walked, WalkedAction, walk};

/// The settings of a proof.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The `dorm` binary whose daemon is proved.
    pub dorm: PathBuf,
    /// The directory of images. Only the references of its own data directories are changed there.
    pub images: PathBuf,
    /// The image its sandboxes start from; needs `sh`, `od`, `tr` and `cksum`.
    pub image: String,
    /// The runsc to use, if not the daemon's default.
    pub runsc: Option<PathBuf>,
    /// The parent of the proof's own directory. Guests must be able to pass through it.
    pub directory: PathBuf,
    /// Returns the common prefix of all names that the daemon of a data directory makes.
    pub prefix: fn(&Path) -> String,
    /// How long passes are repeated; one whole pass if `None`.
    pub limit: Option<Duration>,
    /// The operations to prove; all if empty.
    pub only: Vec<String>,
    /// Whether the power is cut instead of only killing the daemon.
    pub power: bool,
    /// The seed of the order of everything.
    pub seed: u64,
}

/// The result of a proof.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The counts and findings.
    pub report: Report,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Leftovers that could not be cleared away afterwards.
    pub remains: Vec<String>,
}
