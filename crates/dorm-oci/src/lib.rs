#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! Pulls and pushes with registries that speak the OCI distribution protocol, as Docker's does.
//!
//! ```text
//! reference ─► manifest (by tag or digest) ─► configuration ─► missing layers, four at once ─► storage
//!                                                                 │
//!                            DATA/pulls/blobs/sha256/DIGEST.part ─┴─► DIGEST, once its digest matches
//! ```
//!
//! Everything is hashed while it arrives, and used only if its digest matches. A partial blob stays
//! as `.part` and is resumed by the next pull, even of another process; a complete one stays until
//! an image has been created from it. This crate does not know sandboxes; no other crate knows how
//! to talk to registries.

mod artifact;
mod blobs;
mod blocking;
mod challenge;
mod client;
mod credentials;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hops;
mod pull;
mod reference;
mod sending;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use dorm_ports::Destinations;
use dorm_steps::AnySteps;
use dorm_storage::Storage;

pub use pull::OciRegistry;

/// The configuration of the registry client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that keeps blobs until an image is created from them. Only this process may
    /// use it.
    pub directory: PathBuf,
    /// The directory with Docker's `config.json`. Default: `DOCKER_CONFIG`, or `~/.docker` if that
    /// is not set.
    pub docker_config: Option<PathBuf>,
    /// How long a connection may be idle before it is closed.
    pub stall: Duration,
    /// How often a request without progress is tried.
    pub tries: u32,
    /// The pause before the first retry. It doubles before each further one.
    pub pause: Duration,
    /// The maximum pause that a registry can request. A longer one is reported to the caller.
    pub patience: Duration,
    /// The destinations to which a registry may redirect. A registry named by a caller is contacted
    /// at any address.
    pub destinations: Destinations,
    /// Called at each step of a pull.
    pub steps: AnySteps,
}

impl Config {
    /// Returns a configuration with defaults for everything except the directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            docker_config: None,
            stall: Duration::from_secs(30),
            tries: 5,
            pause: Duration::from_millis(500),
            patience: Duration::from_secs(60),
            destinations: Destinations::default(),
            steps: dorm_steps::pass(),
        }
    }
}

/// Opens the registry client for images of `storage`.
///
/// # Errors
/// When the directory cannot be created or read, or TLS is not available.
pub fn open(config: Config, storage: Storage) -> std::io::Result<OciRegistry> {
    OciRegistry::open(config, storage)
}
