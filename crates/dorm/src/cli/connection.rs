//! The connection to a daemon: over the owner's socket in the data directory, or over TCP with a
//! key.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dorm_client::{Client, OwnerSocket, Retries};

use super::output::Format;
use super::problem::Problem;
use crate::data::{DataError, read_address, read_key};

/// The environment variable with the key of a daemon whose data directory is not on this host.
const KEY: &str = "DORM_KEY";

/// Options of every verb that calls a daemon.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// The daemon's address, such as http://127.0.0.1:7070. By default the daemon of the data
    /// directory is called: by root over the socket `api.sock` in it, without a key, and otherwise
    /// at the address on which it listens
    #[arg(long, global = true, env = "DORM_SERVER", value_name = "URL", help_heading = "Daemon")]
    server: Option<String>,
    /// Certificate authorities in PEM that may have signed the daemon's certificate, besides those
    /// of this host
    #[arg(long, global = true, env = "DORM_CA", value_name = "FILE", help_heading = "Daemon")]
    ca: Option<PathBuf>,
    /// The daemon's data directory, for its address and key
    #[arg(long, global = true, env = "DORM_DATA", value_name = "DIRECTORY", default_value = crate::data::DEFAULT,
        help_heading = "Daemon")]
    data: PathBuf,
    /// The project to act in, for keys that are not bound to one [default: the key's own, or local]
    #[arg(long, global = true, env = "DORM_PROJECT", value_name = "NAME", help_heading = "Daemon")]
    project: Option<String>,
}

impl Connection {
    /// Returns a client for the daemon. Sends nothing yet.
    pub(crate) fn client(&self) -> Result<Client, Problem> {
        // A person sees that a request has failed, and decides what to do.
        let client = self.client_of_key()?.with_retries(Retries { requests: 0, ..Retries::default() });
        Ok(match self.project() {
            Some(project) => client.in_project(project),
            None => client,
        })
    }

    fn client_of_key(&self) -> Result<Client, Problem> {
        let server = self.server.as_ref().filter(|server| !server.is_empty());
        let given = std::env::var(KEY).ok().filter(|key| !key.is_empty());
        // A key that was given is used even by the owner: it may permit less.
        if server.is_none() && given.is_none() {
            let socket = OwnerSocket::of(&self.data).ok().filter(OwnerSocket::is_open_to_us);
            if let Some(socket) = socket {
                return Ok(Client::of_owner(socket, read_address(&self.data)?)?);
            }
        }
        let server = match server {
            Some(server) => server.clone(),
            None => read_address(&self.data)?.ok_or_else(|| {
                let message = format!("no daemon has run with the data directory {}", self.data.display());
                Problem::no_daemon(
                    message,
                    "start `dorm serve`, or give its address with --server or its data directory with --data",
                )
            })?,
        };
        Ok(Client::new(&server, self.key(&server)?, self.ca.as_deref())?)
    }

    /// Returns the key for a server: one that was given, or that of this host's daemon.
    pub(crate) fn key(&self, server: &str) -> Result<String, Problem> {
        match std::env::var(KEY).ok().filter(|key| !key.is_empty()) {
            Some(key) => Ok(key),
            // The key of this host's daemon is never sent to another host.
            None if !is_here(server) => Err(Problem::usage(format!("no key for {server}"), format!("set {KEY}"))),
            None => read_key(&self.data).map_err(|error| match error {
                DataError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => Problem::usage(
                    format!("{} contains no key for {server}", self.data.display()),
                    format!("give the daemon's data directory with --data, or its key in {KEY}"),
                ),
                error => error.into(),
            }),
        }
    }

    /// Returns the file with further authorities that was chosen.
    pub(crate) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Returns the project that was chosen.
    pub(crate) fn project(&self) -> Option<&str> {
        self.project.as_deref().filter(|project| !project.is_empty())
    }
}

fn is_here(server: &str) -> bool {
    let server = server.trim().trim_end_matches('/');
    let authority = server.split_once("://").map_or(server, |(_, authority)| authority);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_here() {
        for server in ["http://127.0.0.1:7070", "http://localhost:1/", "http://[::1]:80", "https://127.9.9.9"] {
            assert!(is_here(server), "{server}");
        }
        for server in ["http://10.0.0.1:7070", "http://example.org", "http://localhost.example.org:7070", ""] {
            assert!(!is_here(server), "{server}");
        }
    }
}
