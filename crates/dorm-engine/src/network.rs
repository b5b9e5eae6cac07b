//! The port between an engine and the host's network.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use async_trait::async_trait;
use dorm_lifecycle::Egress;
use thiserror::Error;

use crate::BoxStream;

/// The id of a lease on this host: a small number, reused after the lease is released.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u16);

/// One pair of network namespaces: the sandbox's own, and its gateway's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its id on this host.
    pub id: LeaseId,
    /// The namespace the engine starts the sandbox in, such as `/run/netns/dorm-…`.
    pub namespace: PathBuf,
    /// The interface in the namespace, with `address/prefix` and a route to `gateway`.
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

/// Why an operation on the host's network failed.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// No process listens on the port.
    #[error("no process listens on port {0}")]
    Refused(u16),
    /// There is no lease with this id.
    #[error("there is no network lease {}", .0.0)]
    NoLease(LeaseId),
    /// All ids are in use.
    #[error("all {0} network leases of this host are in use: terminate or suspend sandboxes first")]
    Exhausted(usize),
    /// Any other failure; the text names the operation.
    #[error("cannot {operation}")]
    Failed {
        /// The operation, with its operand.
        operation: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The traffic of a lease, and its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes that the sandbox has sent to hosts outside since the lease was made.
    pub sent_bytes: u64,
    /// Bytes that it has received from hosts outside.
    pub received_bytes: u64,
    /// The limit for each direction, in bytes per second, if there is one.
    pub limit_bytes_per_second: Option<u64>,
}

/// Provides runs with a network. Through it, no sandbox reaches the host's own services or another
/// sandbox.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Creates a pair of namespaces with this egress policy. With `Egress::None`, nothing can leave
    /// until [`Network::allow`].
    async fn lease(&self, egress: &Egress) -> Result<Lease, NetworkError>;

    /// Sets the egress policy of the lease at once, replacing the previous one. `Egress::None`
    /// stops all traffic.
    async fn allow(&self, lease: LeaseId, egress: &Egress) -> Result<(), NetworkError>;

    /// Connects to a TCP port of the sandbox, from its gateway. The connection breaks when the
    /// lease is released: use [`PortStream`](crate::PortStream).
    async fn connect(&self, lease: LeaseId, port: u16) -> Result<BoxStream, NetworkError>;

    /// Returns the traffic of the lease.
    async fn traffic(&self, lease: LeaseId) -> Result<Traffic, NetworkError>;

    /// Releases a lease: namespaces, links and rules are removed. Releasing one that does not exist
    /// is a success.
    async fn release(&self, lease: LeaseId) -> Result<(), NetworkError>;

    /// Returns the leases on this host, including those from before a restart of the daemon.
    async fn leases(&self) -> Result<Vec<Lease>, NetworkError>;
}
