//! The two ways to reach a daemon: its address with a key, and its owner's socket.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{Client, ClientError};
use crate::owner_socket::OwnerSocket;

/// The `Host` header over the owner's socket.
const OWNER: &str = "localhost";

/// How the daemon is reached.
#[derive(Clone)]
pub(super) enum Door {
    /// Over TCP.
    Network {
        /// Host and port.
        authority: String,
        /// The API key.
        key: String,
    },
    /// Over the socket in the data directory.
    Owner {
        /// The socket.
        socket: OwnerSocket,
        /// The address at which the daemon listens for others.
        listens: Option<String>,
    },
}

/// A connection to the daemon, for protocols other than request and response.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Door {
    /// Returns the authority of the daemon in URLs.
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
