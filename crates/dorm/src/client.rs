//! A client of the native HTTP API for the command line: sends requests and returns every response
//! as a value or a named error.
//!
//! It reaches the daemon over TCP with a key, or as its owner over a socket, and uses the types of
//! `dorm_api_types`. It does not know terminals, tables or exit codes, and knows nothing of the
//! daemon except its HTTP API.

mod builds;
mod door;
mod environments;
mod error;
mod files;
mod inside;
mod processes;
mod remote;
mod resources;
mod sse;
mod terminal;
mod tls;
mod transfer;
mod volumes;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use dorm_api_types as wire;

use crate::owner_socket::OwnerSocket;
use door::Door;

pub(crate) use door::Connection;
pub(crate) use error::ClientError;
pub(crate) use files::Wanted;
pub(crate) use processes::{CommandEvent, CommandEvents};
pub(crate) use sse::Sse;
pub(crate) use terminal::TerminalEvent;

/// The header that says whether a request wakes a suspended sandbox.
const WAKE: &str = "x-dormouse-wake";

/// Whether a route uses the inside of a sandbox.
fn is_inside(path: &str) -> bool {
    let part = path.split('/').nth(3).unwrap_or_default();
    path.starts_with("/sandboxes/") && ["exec", "processes", "services", "files", "watchers"].contains(&part)
}

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A client of one daemon.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    door: Door,
    /// The name of the daemon in errors.
    server: String,
    /// Headers of every request.
    headers: Vec<(&'static str, String)>,
}

impl Client {
    /// Returns a client for the daemon at `server`, such as `http://127.0.0.1:7070`. With HTTPS,
    /// its certificate is verified by the authorities of this host and those in the file `ca`. Does
    /// not connect yet.
    pub(crate) fn new(server: &str, key: String, ca: Option<&Path>) -> Result<Self, ClientError> {
        let server = server.trim().trim_end_matches('/');
        let (is_tls, authority) = match server.split_once("://") {
            Some(("http", authority)) => (false, authority),
            Some(("https", authority)) => (true, authority),
            _ => (false, ""),
        };
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            return Err(ClientError::Address(server.to_owned()));
        }
        let tls = is_tls.then(|| tls::config(ca)).transpose()?;
        let http = match &tls {
            Some(config) => http().tls_backend_preconfigured(config.clone()),
            None => http(),
        };
        let http = http.build().map_err(|source| ClientError::Start { source })?;
        let door = Door::Network { authority: authority.to_owned(), key, tls: tls.map(Arc::new) };
        Ok(Self { http, door, server: server.to_owned(), headers: Vec::new() })
    }

    /// Returns a client for the daemon that listens at its owner's socket, and at `listens` for
    /// others. Does not connect yet.
    pub(crate) fn of_owner(socket: OwnerSocket, listens: Option<String>) -> Result<Self, ClientError> {
        let http = http().unix_socket(socket.path()).build().map_err(|source| ClientError::Start { source })?;
        let server = socket.shown().display().to_string();
        Ok(Self { http, door: Door::Owner { socket, listens }, server, headers: Vec::new() })
    }

    /// Returns host and port of the daemon, for addresses that others use, or none if they are not
    /// known.
    pub(crate) fn listens(&self) -> Option<&str> {
        match &self.door {
            Door::Network { authority, .. } => Some(authority),
            Door::Owner { listens, .. } => listens.as_deref()?.split_once("://").map(|(_, authority)| authority),
        }
    }

    /// Returns the scheme of those addresses.
    pub(crate) fn scheme(&self) -> &'static str {
        let is_tls = match &self.door {
            Door::Network { tls, .. } => tls.is_some(),
            Door::Owner { listens, .. } => listens.as_deref().is_some_and(|at| at.starts_with("https://")),
        };
        if is_tls { "https" } else { "http" }
    }

    /// Returns whether the daemon accepts paths of this host from this client.
    pub(crate) fn may_name_paths(&self) -> bool {
        matches!(self.door, Door::Owner { .. })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}://{}/v1{path}", self.door.scheme(), self.door.authority()));
        let wanted = self.headers.iter().filter(|(name, _)| *name != WAKE || is_inside(path));
        let request = wanted.fold(request, |request, (name, value)| request.header(*name, value));
        match self.door.key() {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Returns a client for the same daemon that acts in this project.
    pub(crate) fn in_project(mut self, project: &str) -> Self {
        self.headers.push(("x-dormouse-project", project.to_owned()));
        self
    }

    /// Returns a client whose requests for the inside of a sandbox wake it.
    pub(crate) fn waking(&self) -> Self {
        let mut client = self.clone();
        client.headers.push((WAKE, "any".to_owned()));
        client
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = request.send().await.map_err(|source| self.broken(source))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let bytes = answer.bytes().await.map_err(|source| self.broken(source))?;
        match serde_json::from_slice::<wire::Problem>(&bytes) {
            Ok(error) => Err(ClientError::Refused { status: status.as_u16(), error: Box::new(error) }),
            Err(_) => Err(ClientError::Foreign { server: self.server.clone(), status: status.as_u16() }),
        }
    }

    fn broken(&self, source: reqwest::Error) -> ClientError {
        let server = self.server.clone();
        if source.is_connect() {
            ClientError::Unreachable { server, source: Box::new(source) }
        } else {
            ClientError::Broken { server, source: Box::new(source) }
        }
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let answer = self.send(request).await?;
        let bytes = answer.bytes().await.map_err(|source| self.broken(source))?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Unreadable { server: self.server.clone(), source })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.request(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.read(self.request(Method::POST, path).json(body)).await
    }

    async fn tell(&self, request: RequestBuilder) -> Result<(), ClientError> {
        let answer = self.send(request).await?;
        answer.bytes().await.map(drop).map_err(|source| self.broken(source))
    }

    async fn stream(&self, request: RequestBuilder) -> Result<Sse, ClientError> {
        let answer = self.send(request.header("accept", "text/event-stream")).await?;
        Ok(Sse::new(self.server.clone(), answer))
    }
}

fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_WITHIN).redirect(reqwest::redirect::Policy::none())
}

/// Encodes a text as one segment of a path, whatever it contains.
fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    // An empty segment would name the list, and dots, however they are encoded, its parent. No name
    // contains a space.
    if matches!(text, "" | "." | "..") {
        encoded.push_str("%20");
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_user_types_stays_one_segment_of_the_path() {
        for (text, path) in
            [("web-1", "web-1"), ("a/b?c#d", "a%2Fb%3Fc%23d"), ("..", "..%20"), ("", "%20"), ("ü", "%C3%BC")]
        {
            assert_eq!(segment(text), path);
        }
    }

    #[test]
    fn an_address_that_cannot_be_one_is_refused() {
        for text in ["", "127.0.0.1:7070", "ftp://host", "https://", "http://", "http://host/path", "http://user@host"]
        {
            assert!(matches!(Client::new(text, String::new(), None), Err(ClientError::Address(_))), "{text}");
        }
        let client = Client::new("http://127.0.0.1:7070/", String::new(), None).unwrap();
        assert_eq!(client.door.authority(), "127.0.0.1:7070");
    }
}
