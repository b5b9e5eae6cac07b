//! The origin of a request: its listener, and its address.

use std::net::IpAddr;
use std::sync::Arc;

use crate::connections::Ticket;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The listener through which a request came.
#[derive(Clone, Debug)]
pub enum Door {
    /// The network listener, with the connection's place.
    Network(Arc<Ticket>),
    /// The owner's socket.
    Owner,
}
