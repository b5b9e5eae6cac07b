#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! Images of registries that speak the OCI distribution protocol, as Docker's does.
//!
//! ```text
//! reference ─► manifest (by tag or digest) ─► configuration ─► layers that are not here, four at once ─► pool
//!                                                                 │
//!                            DATA/pulls/blobs/sha256/DIGEST.part ─┴─► DIGEST, when it is what its name says
//! ```
//!
//! Everything is hashed while it comes and believed only when its digest is right. What is not whole stays as `.part`
//! and is gone on with by the next pull, also of another process; what is whole stays until an image was made of it.
//! This crate knows no sandboxes; it alone knows how registries are spoken to.

mod artifact;
mod blobs;
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

use dorm_pool::Pool;
use dorm_service::Destinations;
use dorm_steps::AnySteps;

pub use pull::OciRegistry;

/// How registries are asked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where blobs are kept until an image is made of them. Belongs to this process alone.
    pub directory: PathBuf,
    /// The directory with Docker's `config.json`. Default: `DOCKER_CONFIG`, else `~/.docker`.
    pub docker_config: Option<PathBuf>,
    /// How long nothing may come before a connection is given up.
    pub stall: Duration,
    /// How often something is tried without any progress.
    pub tries: u32,
    /// How long is waited before the second try; twice as long before each that follows.
    pub pause: Duration,
    /// The longest that is waited because a registry says so. What takes longer is given back to the caller.
    pub patience: Duration,
    /// Where a registry may send us. What a caller has named is asked wherever it is.
    pub destinations: Destinations,
    /// Who is asked at each step of a pull.
    pub steps: AnySteps,
}

impl Config {
    /// Defaults for everything but the directory.
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

/// Opens registries for images of `pool`.
///
/// # Errors
/// When the directory cannot be made or read, or there is no TLS.
pub fn open(config: Config, pool: Pool) -> std::io::Result<OciRegistry> {
    OciRegistry::open(config, pool)
}
