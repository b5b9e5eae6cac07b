//! The origin of a request: its listener, and its address.

use std::net::IpAddr;
use std::sync::Arc;

use crate::connections::Ticket;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Whose credentials a request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Those of the daemon's owner.
    Owner,
    /// The API key with this SHA-256.
    Key([u8; 32]),
}

/// The listener through which a request came.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// The network listener, with the connection's place.
    Network(Arc<Ticket>),
    /// The owner's socket.
    Owner,
}
