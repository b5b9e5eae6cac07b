//! Ports of a sandbox, through the gateway of the daemon.

use std::net::IpAddr;

use bytes::Bytes;
use reqwest::Method;

use crate::client::{Client, ClientError, PortResponse};
use crate::types;

/// A port of a sandbox. Traffic to it resumes a suspended sandbox, unless its `wake` policy is
/// `never`.
#[derive(Clone, Debug)]
pub struct Port {
    client: Client,
    sandbox: String,
    port: u16,
}

impl Port {
    pub(crate) const fn new(client: Client, sandbox: String, port: u16) -> Self {
        Self { client, sandbox, port }
    }

    /// Returns its number.
    pub const fn number(&self) -> u16 {
        self.port
    }

    /// Returns who can reach it, and the token that gives access.
    pub async fn info(&self) -> Result<types::Port, ClientError> {
        self.client.port(&self.sandbox, self.port).await
    }

    /// Returns its URL, such as `http://8000-ID.localhost:7070/`. Browsers resolve names that end
    /// in `localhost`; other programs use [`Port::request`] or [`Port::headers`].
    ///
    /// # Errors
    /// `Address` for a client of a socket, since that has no URL for ports.
    pub async fn url(&self) -> Result<String, ClientError> {
        let Some(authority) = self.client.listens() else {
            return Err(ClientError::Address("the socket of the owner".to_owned()));
        };
        let label = self.info().await?.label;
        Ok(format!("{}://{label}.{}/", self.client.scheme(), domain(authority)))
    }

    /// Returns headers that send a request for the daemon's own address to this port, with any HTTP
    /// client. They include the token, which gives access to a private port.
    pub async fn headers(&self) -> Result<[(&'static str, String); 3], ClientError> {
        let info = self.info().await?;
        Ok([
            ("X-Dormouse-Sandbox", info.sandbox),
            ("X-Dormouse-Port", info.port.to_string()),
            ("X-Dormouse-Token", info.token),
        ])
    }

    /// Sends the request GET for a path, and returns the response of the program.
    pub async fn get(&self, path: &str) -> Result<PortResponse, ClientError> {
        self.request(Method::GET, path, Bytes::new()).await
    }

    /// Sends a request with this method, path and body, and returns the response of the program,
    /// whatever its status is. It is never repeated.
    ///
    /// # Errors
    /// `port_closed` if no program listens, and others if the gateway refuses the request.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<PortResponse, ClientError> {
        self.client.request_port(&self.headers().await?, method, path, body.into()).await
    }

    /// Creates a link that opens the port in a browser, once and within a minute.
    pub async fn link(&self) -> Result<types::PortLink, ClientError> {
        self.client.port_link(&self.sandbox, self.port).await
    }
}

/// Returns the domain of the hosts of ports, with the port of the daemon.
fn domain(authority: &str) -> String {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let host = if is_address { "localhost" } else { host };
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::domain;

    #[test]
    fn an_address_has_the_ports_of_localhost() {
        assert_eq!(domain("127.0.0.1:7070"), "localhost:7070");
        assert_eq!(domain("[::1]:7070"), "localhost:7070");
        assert_eq!(domain("dorm.example.org"), "dorm.example.org");
    }
}
