//! The sockets of a lease on which DNS queries arrive. [`crate::lease`] opens them in the gateway,
//! [`crate::names`] answers what they receive.

use std::io;
use std::net::{TcpListener, UdpSocket};

use crate::layout::GATEWAY;
use crate::ruleset::NAME_PORT;

/// The sockets that receive one sandbox's queries: port 53 of its gateway, over UDP and TCP.
#[derive(Debug)]
pub(crate) struct NameSockets {
    pub(crate) datagrams: UdpSocket,
    pub(crate) connections: TcpListener,
}

impl NameSockets {
    /// Opens the sockets in the namespace of the calling thread.
    pub(crate) fn bind() -> io::Result<Self> {
        let datagrams = UdpSocket::bind((GATEWAY, NAME_PORT))?;
        let connections = TcpListener::bind((GATEWAY, NAME_PORT))?;
        datagrams.set_nonblocking(true)?;
        connections.set_nonblocking(true)?;
        Ok(Self { datagrams, connections })
    }
}
