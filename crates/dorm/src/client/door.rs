//! The two ways to a daemon: its address with a key, and the socket of its owner.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{Client, ClientError};
use crate::owner_socket::OwnerSocket;

/// What is sent as `Host` over the owner's socket.
const OWNER: &str = "localhost";

/// How the daemon is reached.
#[derive(Clone)]
pub(super) enum Door {
    /// Over TCP.
    Network {
        /// Host and port.
        authority: String,
        /// What opens it.
        key: String,
    },
    /// Over the socket in the data directory.
    Owner {
        /// Where it is.
        socket: OwnerSocket,
        /// Where the daemon listens for others.
        listens: Option<String>,
    },
}

/// A connection to the daemon, for what is not a request and its answer.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Door {
    /// What stands for the daemon in addresses.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Network { authority, .. } => authority,
            Self::Owner { .. } => OWNER,
        }
    }

    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Network { key, .. } => Some(key),
            Self::Owner { .. } => None,
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Network { authority, .. } => {
                let stream = TcpStream::connect(authority).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Owner { socket, .. } => Ok(Box::new(UnixStream::connect(socket.path()).await?)),
        }
    }
}

impl Client {
    /// Connects to the daemon.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Connection>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { server: self.server.clone(), source };
        match tokio::time::timeout(super::CONNECT_WITHIN, self.door.connect()).await {
            Ok(connected) => connected.map_err(|error| unreachable(Box::new(error))),
            Err(late) => Err(unreachable(Box::new(late))),
        }
    }
}
