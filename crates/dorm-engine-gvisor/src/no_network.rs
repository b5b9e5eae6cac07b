//! The network of an engine whose runs have none.

use async_trait::async_trait;
use dorm_engine::{BoxStream, Lease, LeaseId, Network, NetworkError, Traffic};
use dorm_lifecycle::Egress;

/// A network without leases, for an engine whose runs have no network.
#[derive(Debug)]
pub struct NoNetwork;

#[async_trait]
impl Network for NoNetwork {
    async fn lease(&self, _: &Egress) -> Result<Lease, NetworkError> {
        Err(NetworkError::Exhausted(0))
    }

    async fn allow(&self, lease: LeaseId, _: &Egress) -> Result<(), NetworkError> {
        Err(NetworkError::NoLease(lease))
    }

    async fn connect(&self, lease: LeaseId, _: u16) -> Result<BoxStream, NetworkError> {
        Err(NetworkError::NoLease(lease))
    }

    async fn traffic(&self, lease: LeaseId) -> Result<Traffic, NetworkError> {
        Err(NetworkError::NoLease(lease))
    }

    async fn release(&self, _: LeaseId) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn leases(&self) -> Result<Vec<Lease>, NetworkError> {
        Ok(Vec::new())
    }
}
