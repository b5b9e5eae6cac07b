#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

//! The smaller ports between the service and the world: clocks, randomness, facts about the host,
//! the disk of the data directory, and image registries.
//!
//! The ports to engines and stores have crates of their own, `dorm-engine` and `dorm-store`. Where
//! the host itself is the only real implementation, it is beside its port.

mod clock;
mod data_disk;
mod destinations;
mod host;
mod progress;
mod randomness;
mod registry;
mod vault;

pub use clock::{Clock, SystemClock, TokioClock};
pub use data_disk::{DataDisk, HeldBack};
pub use destinations::{Destinations, is_public};
pub use dorm_authority::Authority;
pub use host::{HostFacts, ThisHost};
pub use progress::{Progress, Stage};
pub use randomness::{Randomness, SystemRandomness};
pub use registry::{
    FileContent, Login, Logins, PullProgress, Pushed, Registry, RegistryError, RegistryOperation, RemoteSpec, Transport,
};
pub use vault::{LateVault, SecretValue, Vault, VaultError};
