//! The two ways to reach a daemon: its address with a key, and its owner's socket.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

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
        /// How the daemon is verified, if the connection is encrypted.
        tls: Option<Arc<ClientConfig>>,
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
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Door {
    /// Returns the authority of the daemon in URLs.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Network { authority, .. } => authority,
            Self::Owner { .. } => OWNER,
        }
    }

    /// Returns the scheme of URLs of requests.
    pub(super) fn scheme(&self) -> &'static str {
        match self {
            Self::Network { tls: Some(_), .. } => "https",
            Self::Network { tls: None, .. } | Self::Owner { .. } => "http",
        }
    }

    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Network { key, .. } => Some(key.as_str()).filter(|key| !key.is_empty()),
            Self::Owner { .. } => None,
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Network { authority, tls, .. } => {
                let port = if tls.is_some() { 443 } else { 80 };
                let (host, port) = host_and_port(authority, port);
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                let Some(config) = tls else { return Ok(Box::new(stream)) };
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                Ok(Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?))
            }
            Self::Owner { socket, .. } => Ok(Box::new(UnixStream::connect(socket.path()).await?)),
        }
    }
}

/// Returns the host, without the brackets of an IPv6 address, and the port.
fn host_and_port(authority: &str, default: u16) -> (&str, u16) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(default)),
        _ => (authority, default),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

impl Client {
    /// Connects to the daemon, for protocols other than HTTP requests, such as the upgrade of a
    /// connection to a port.
    pub async fn connect(&self) -> Result<Box<dyn Connection>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { server: self.server.clone(), source };
        match tokio::time::timeout(super::CONNECT_WITHIN, self.door.connect()).await {
            Ok(connected) => connected.map_err(|error| unreachable(Box::new(error))),
            Err(late) => Err(unreachable(Box::new(late))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn a_host_may_have_a_port() {
        for (authority, host, port) in [
            ("localhost:7070", "localhost", 7070),
            ("example.org", "example.org", 443),
            ("[::1]:80", "::1", 80),
            ("[::1]", "::1", 443),
        ] {
            assert_eq!(host_and_port(authority, 443), (host, port));
        }
    }
}
