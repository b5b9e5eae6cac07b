//! The origin of a request: its listener, and its address.

use std::net::IpAddr;
use std::sync::Arc;

use crate::connections::Ticket;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The scheme of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Without encryption.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme as in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The listener through which a request came.
#[derive(Clone, Debug)]
pub enum Door {
    /// The network listener, with the connection's place.
    Network(Arc<Ticket>),
    /// The owner's socket.
    Owner,
}
