//! A client of the native HTTP API of Dormouse: one method for each operation, which sends a
//! request and returns its response as a value or a named error.
//!
//! It reaches the daemon over TCP with a key, or as its owner over a socket, and uses the types of
//! `dorm_api_types`. It does not know terminals, tables or exit codes, and knows nothing of the
//! daemon except its HTTP API.

mod builds;
mod daemon;
mod door;
mod environments;
mod error;
mod files;
mod images;
mod keys;
mod lineage;
mod lists;
mod path;
mod pools;
mod ports;
mod processes;
mod projects;
mod retries;
mod sandboxes;
mod search;
mod services;
mod snapshots;
mod sse;
mod terminal;
mod tls;
mod volumes;
mod watchers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dorm_api_types as wire;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owner_socket::OwnerSocket;
use door::Door;
use path::{is_inside, segment};
use retries::{Attempts, IDEMPOTENCY_KEY};

pub use door::Connection;
pub use error::ClientError;
pub use files::{ByteStream, Wanted};
pub use images::Downloaded;
pub use lists::{Order, SandboxFilter, SortBy};
pub use ports::PortResponse;
pub use processes::{Chunk, CommandEvent, CommandEvents, Position};
pub(crate) use retries::Reconnects;
pub use retries::Retries;
pub use search::{Find, Grep};
pub use sse::{Sse, SseEvent};
pub use terminal::{Terminal, TerminalEvent, TerminalInput, TerminalOutput};

/// The header that says whether a request wakes a suspended sandbox.
const WAKE: &str = "x-dormouse-wake";

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A client of one daemon, with a method for each operation of its API.
///
/// Sandboxes, snapshots, volumes and the like are named by their id, or by their name where they
/// have one. [`Dormouse`](crate::Dormouse) and [`Sandbox`](crate::Sandbox) are more convenient for
/// most programs; this type has all of the API. It is cheap to clone, and clones share their
/// connections.
///
/// # Errors
/// Every method fails with a [`ClientError`]: [`ClientError::Refused`] if the daemon refuses the
/// request or cannot carry it out, and another variant if there was no response.
///
/// # Repetition
/// After a lost connection, requests that read are sent again, and so are those that make
/// something, which have an idempotency key for that: see [`Retries`]. No other request is ever
/// repeated.
///
/// # Cancellation
/// A request is cancelled by dropping its future, which closes its connection. The daemon completes
/// what it has begun, and a repetition with the same [key](Client::with_idempotency_key) returns
/// it. No method has a time limit of its own; `tokio::time::timeout` gives it one.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    door: Door,
    /// The name of the daemon in errors.
    server: String,
    /// Headers of every request.
    headers: Vec<(&'static str, String)>,
    retries: Retries,
    /// The idempotency key that was chosen for the next request.
    key: Option<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client for the daemon at `server`, such as `http://127.0.0.1:7070`. With HTTPS,
    /// its certificate is verified by the authorities of this host and those in the file `ca`. Does
    /// not connect yet.
    ///
    /// # Errors
    /// `Address` if `server` is no address, and `Authority` or `Tls` if the file cannot be used.
    pub fn new(server: &str, key: String, ca: Option<&Path>) -> Result<Self, ClientError> {
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
        Ok(Self::through(door, http, server.to_owned()))
    }

    /// Returns a client for the daemon that listens at its owner's socket, and at `listens` for
    /// others. Does not connect yet.
    ///
    /// # Errors
    /// `Start` if no HTTP client can be created.
    pub fn of_owner(socket: OwnerSocket, listens: Option<String>) -> Result<Self, ClientError> {
        let http = http().unix_socket(socket.path()).build().map_err(|source| ClientError::Start { source })?;
        let server = socket.shown().display().to_string();
        Ok(Self::through(Door::Owner { socket, listens }, http, server))
    }

    fn through(door: Door, http: reqwest::Client, server: String) -> Self {
        Self { http, door, server, headers: Vec::new(), retries: Retries::default(), key: None }
    }

    /// Returns host and port of the daemon, for addresses that others use, or none if they are not
    /// known.
    pub fn listens(&self) -> Option<&str> {
        match &self.door {
            Door::Network { authority, .. } => Some(authority),
            Door::Owner { listens, .. } => listens.as_deref()?.split_once("://").map(|(_, authority)| authority),
        }
    }

    /// Returns the scheme of those addresses.
    pub fn scheme(&self) -> &'static str {
        let is_tls = match &self.door {
            Door::Network { tls, .. } => tls.is_some(),
            Door::Owner { listens, .. } => listens.as_deref().is_some_and(|at| at.starts_with("https://")),
        };
        if is_tls { "https" } else { "http" }
    }

    /// Returns whether the daemon accepts paths of its host from this client.
    pub fn may_name_paths(&self) -> bool {
        matches!(self.door, Door::Owner { .. })
    }

    /// Returns a client for the same daemon that acts in this project.
    #[must_use]
    pub fn in_project(mut self, project: &str) -> Self {
        self.headers.push(("x-dormouse-project", project.to_owned()));
        self
    }

    /// Returns a client whose requests for the inside of a sandbox wake it, whatever its policy is.
    #[must_use]
    pub fn waking(&self) -> Self {
        let mut client = self.clone();
        client.headers.push((WAKE, "any".to_owned()));
        client
    }

    /// Returns a client that repeats requests and continues streams like this.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Returns a client whose requests that make something carry this key in place of a random one.
    ///
    /// Another request with the same key, also from another program, gets what the first one has
    /// made. It is for one request: with the key of a different one, a request is refused.
    #[must_use]
    pub fn with_idempotency_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// Returns a client whose requests that make something carry one new key, for a request that
    /// this crate may send again itself.
    pub(crate) fn with_own_idempotency_key(&self) -> Self {
        let key = self.key.clone().or_else(retries::idempotency_key);
        Self { key, ..self.clone() }
    }

    /// Returns the client for requests after the one that the key was for.
    pub(crate) fn without_idempotency_key(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    /// Returns the name of the daemon in errors.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns how requests are repeated and streams are continued.
    pub fn retries(&self) -> Retries {
        self.retries
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_at(method, &format!("/v1{path}"), is_inside(path))
    }

    /// A request for a whole path. `wakes` says whether it may wake a sandbox.
    fn request_at(&self, method: Method, path: &str, wakes: bool) -> RequestBuilder {
        let request = self.http.request(method, format!("{}://{}{path}", self.door.scheme(), self.door.authority()));
        let wanted = self.headers.iter().filter(|(name, _)| *name != WAKE || wakes);
        let request = wanted.fold(request, |request, (name, value)| request.header(*name, value));
        match self.door.key() {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// A request that makes something, at most once however often it is sent.
    fn once(&self, path: &str) -> RequestBuilder {
        let request = self.request(Method::POST, path);
        match self.key.clone().or_else(retries::idempotency_key) {
            Some(key) => request.header(IDEMPOTENCY_KEY, key),
            None => request,
        }
    }

    /// Sends a request and returns its response, whose body is not read yet.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let mut attempts = self.attempts(request)?;
        while let Some(request) = attempts.next() {
            match self.attempt(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.pause(error).await?,
            }
        }
        Err(ClientError::Ended { server: self.server.clone() })
    }

    /// Sends a request and returns the body of its response.
    async fn bytes(&self, request: RequestBuilder) -> Result<Bytes, ClientError> {
        let mut attempts = self.attempts(request)?;
        while let Some(request) = attempts.next() {
            let answer = match self.attempt(request).await {
                Ok(answer) => answer.bytes().await.map_err(|source| self.broken(source)),
                Err(error) => Err(error),
            };
            match answer {
                Ok(bytes) => return Ok(bytes),
                Err(error) => attempts.pause(error).await?,
            }
        }
        Err(ClientError::Ended { server: self.server.clone() })
    }

    fn attempts(&self, request: RequestBuilder) -> Result<Attempts, ClientError> {
        let request = request.build().map_err(|source| ClientError::Request { source })?;
        Ok(Attempts::new(request, self.retries))
    }

    async fn attempt(&self, request: reqwest::Request) -> Result<Response, ClientError> {
        let answer = self.http.execute(request).await.map_err(|source| self.broken(source))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = answer.bytes().await.map_err(|source| self.broken(source))?;
        Err(self.refused(status.as_u16(), &bytes, after.map(Duration::from_secs)))
    }

    /// Returns the error of a response that is not a success.
    fn refused(&self, status: u16, body: &[u8], retry_after: Option<Duration>) -> ClientError {
        match serde_json::from_slice::<wire::Problem>(body) {
            Ok(error) => ClientError::Refused { status, error: Box::new(error), retry_after },
            Err(_) => ClientError::Foreign { server: self.server.clone(), status },
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
        let bytes = self.bytes(request).await?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Unreadable { server: self.server.clone(), source })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.request(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.read(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a request that makes something.
    async fn make<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.read(self.once(path).json(body)).await
    }

    async fn tell(&self, request: RequestBuilder) -> Result<(), ClientError> {
        self.bytes(request).await.map(drop)
    }

    async fn stream(&self, request: RequestBuilder) -> Result<Sse, ClientError> {
        let answer = self.send(request.header("accept", "text/event-stream")).await?;
        Ok(Sse::new(self.server.clone(), answer))
    }

    /// Returns the body of a response, piece by piece.
    async fn body(&self, request: RequestBuilder) -> Result<ByteStream, ClientError> {
        Ok(self.body_of(self.send(request).await?))
    }

    fn body_of(&self, answer: Response) -> ByteStream {
        use futures_util::StreamExt as _;
        let client = self.clone();
        answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))).boxed()
    }
}

fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_WITHIN).redirect(reqwest::redirect::Policy::none())
}

#[cfg(test)]
mod tests {
    use super::*;

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
