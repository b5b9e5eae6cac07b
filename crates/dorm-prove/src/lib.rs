//! The proof that nothing is lost, on the host it is run on and with its real engine.
//!
//! ```text
//! a daemon of its own ── each step of each operation ──► asked here (steps) ──► passed on, or the daemon is killed
//!        │ killed                                                                        │
//!        └──── another one on the same data ──► settled? ──► records = host? ──► every sandbox asked (probe)
//! ```
//!
//! It is a client like any other: it knows the API, what lies on the disk and what the kernel says, but nothing of what
//! the daemon believes. It does not know what an operation's steps are; it learns them by watching it once.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod damage;
mod dialogue;
mod full_disk;
mod host;
mod operation;
mod power;
mod probe;
mod proof;
mod report;
mod scenario;
mod silent;
mod small_disk;
mod steps;
mod walks;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use proof::{names, prove};
pub use report::{Finding, Kind, Report, Row};
pub use silent::{Silenced, silence};
pub use walks::{Stumble, Walked, WalkedAction, walk};

/// What is to be proved, and with what.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The program whose daemon is proved.
    pub dorm: PathBuf,
    /// Where images are. Nothing is changed there but the references of its own data directories.
    pub images: PathBuf,
    /// The image its sandboxes start from; needs `sh`, `od`, `tr` and `cksum`.
    pub image: String,
    /// The runsc to use, if not the daemon's default.
    pub runsc: Option<PathBuf>,
    /// Where the proof makes its own directory. Guests must be able to pass through it.
    pub directory: PathBuf,
    /// What the names of everything that the daemon of a data directory makes have in common.
    pub prefix: fn(&Path) -> String,
    /// Passes are repeated for so long; one whole pass when not given.
    pub limit: Option<Duration>,
    /// Only these operations; all when there are none.
    pub only: Vec<String>,
    /// Whether the power is cut, and not only the daemon killed.
    pub power: bool,
    /// From which the order of everything is made.
    pub seed: u64,
}

/// How a proof ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did and found.
    pub report: Report,
    /// Whether it was broken off from outside.
    pub interrupted: bool,
    /// What could not be cleared away afterwards.
    pub remains: Vec<String>,
}
