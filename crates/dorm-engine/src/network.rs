//! The port between an engine and the host's network.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use async_trait::async_trait;
use dorm_lifecycle::Egress;
use thiserror::Error;

use crate::BoxStream;

/// Names one lease on this host: a small number, used again after its release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u16);

/// One pair of network namespaces: the sandbox's own, and its gateway's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its name on this host.
    pub id: LeaseId,
    /// The namespace the engine starts the sandbox in, such as `/run/netns/dorm-…`.
    pub namespace: PathBuf,
    /// The interface in it, with `address/prefix` and a route to `gateway`.
    pub interface: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The sandbox's address; the same in every lease.
    pub address: Ipv4Addr,
    /// The length of its network's prefix.
    pub prefix: u8,
    /// The gateway's address; the same in every lease.
    pub gateway: Ipv4Addr,
}

/// Why the host's network could not do what it was asked to.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// Nobody listens there.
    #[error("nobody listens on port {0}")]
    Refused(u16),
    /// No lease of that number exists.
    #[error("there is no network lease {}", .0.0)]
    NoLease(LeaseId),
    /// Every number is taken.
    #[error("all {0} network leases of this host are taken: terminate or suspend sandboxes first")]
    Exhausted(usize),
    /// Anything else; the text names what was done.
    #[error("network: {operation}")]
    Failed {
        /// What was done, with its operand.
        operation: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What a lease has sent and received, and how fast it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes that the sandbox has sent to hosts outside, since the lease was made.
    pub sent_bytes: u64,
    /// Bytes that it has received from there.
    pub received_bytes: u64,
    /// The limit in bytes a second for each direction, if there is one.
    pub limit_bytes_per_second: Option<u64>,
}

/// Gives runs their network. No sandbox reaches the host's own services or another sandbox through it.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// A new pair of namespaces in which nothing may leave until [`Network::allow`].
    async fn lease(&self) -> Result<Lease, NetworkError>;

    /// Sets where traffic of the lease may go, at once, replacing what was allowed before. `Egress::None` stops
    /// everything.
    async fn allow(&self, lease: LeaseId, egress: &Egress) -> Result<(), NetworkError>;

    /// Connects to a TCP port of the sandbox, from its gateway.
    async fn connect(&self, lease: LeaseId, port: u16) -> Result<BoxStream, NetworkError>;

    /// Counts what the lease has sent and received.
    async fn traffic(&self, lease: LeaseId) -> Result<Traffic, NetworkError>;

    /// Gives a lease back: namespaces, links and rules go. Releasing one that is not there is a success.
    async fn release(&self, lease: LeaseId) -> Result<(), NetworkError>;

    /// The leases that exist on this host, also from before a restart of the daemon.
    async fn leases(&self) -> Result<Vec<Lease>, NetworkError>;
}
