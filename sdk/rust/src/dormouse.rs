//! The entry to a daemon.

use std::path::Path;

use crate::client::{Client, ClientError, SandboxFilter};
use crate::create::Create;
use crate::ensure::Ensure;
use crate::events::EventStream;
use crate::owner_socket::OwnerSocket;
use crate::progress::Progress;
use crate::sandbox::Sandbox;
use crate::types;

/// The address of a daemon that nothing else was said about.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

/// A daemon, as most programs use it: it creates sandboxes and finds them again.
///
/// Everything else that the API has is a method of [`Dormouse::client`]. Errors, repetition and
/// cancellation are as [`Client`] describes. The value is cheap to clone.
#[derive(Clone, Debug)]
pub struct Dormouse {
    client: Client,
}

impl Dormouse {
    /// Returns the daemon that the environment names. Does not connect yet.
    ///
    /// - `DORM_SERVER`: `http://` or `https://` and a host, or `unix:` and the path of `api.sock`.
    ///   Default `http://127.0.0.1:7070`.
    /// - `DORM_KEY`: an API key. The socket needs none. Default: none.
    /// - `DORM_CA`: a file with certificate authorities to trust besides those of the host.
    ///   Default: none.
    ///
    /// # Errors
    /// `Address` if `DORM_SERVER` is no address, `Unreachable` if there is no directory with the
    /// socket, `Authority` or `Tls` if the file cannot be used.
    pub fn from_env() -> Result<Self, ClientError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let server = variable("DORM_SERVER").unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        let ca = variable("DORM_CA");
        Self::at(&server, variable("DORM_KEY").as_deref(), ca.as_deref().map(Path::new))
    }

    /// Returns the daemon at an address, as [`Dormouse::from_env`] has it in its variables.
    ///
    /// # Errors
    /// As there.
    pub fn at(server: &str, key: Option<&str>, ca: Option<&Path>) -> Result<Self, ClientError> {
        let client = match server.strip_prefix("unix:") {
            Some(path) => {
                let unreachable = |error: std::io::Error| ClientError::Unreachable {
                    server: server.to_owned(),
                    source: Box::new(error),
                };
                Client::of_owner(OwnerSocket::at(Path::new(path)).map_err(unreachable)?, None)?
            }
            None => Client::new(server, key.unwrap_or_default().to_owned(), ca)?,
        };
        Ok(Self { client })
    }

    /// Returns the daemon of a client.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client, which has a method for each operation of the API.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the same daemon for requests in this project. Default: that of the key, or `local`.
    #[must_use]
    pub fn in_project(&self, project: &str) -> Self {
        Self { client: self.client.clone().in_project(project) }
    }

    /// Creates a sandbox from an image: a tag, a digest, the name of an image in a registry, or the
    /// name of a snapshot. Await the result to send the request; the sandbox runs then.
    pub fn create(&self, image: &str) -> Create {
        Create::new(
            self.client.clone(),
            types::CreateSandbox { image: Some(image.to_owned()), ..types::CreateSandbox::default() },
        )
    }

    /// Creates a sandbox from a snapshot, by its id. One of memory continues with its processes.
    pub fn restore(&self, snapshot: &str) -> Create {
        Create::new(
            self.client.clone(),
            types::CreateSandbox { snapshot: Some(snapshot.to_owned()), ..types::CreateSandbox::default() },
        )
    }

    /// Creates a sandbox with these settings.
    pub fn create_with(&self, asked: types::CreateSandbox) -> Create {
        Create::new(self.client.clone(), asked)
    }

    /// Finds a sandbox by its id or name. One that is suspended stays so.
    ///
    /// # Errors
    /// `not_found` if there is none.
    pub async fn connect(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        let found = self.client.describe(sandbox).await?;
        Ok(Sandbox::new(self.client.clone(), found.id))
    }

    /// Returns the sandbox with this id. Sends no request.
    pub fn sandbox(&self, id: &str) -> Sandbox {
        Sandbox::new(self.client.clone(), id.to_owned())
    }

    /// Returns the sandboxes that a filter selects.
    pub async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<types::Sandbox>, ClientError> {
        self.client.sandboxes(filter).await
    }

    /// Gets the sandbox of an environment, whatever state it is in: it runs, or it is resumed,
    /// restored from a snapshot, or created and set up. Await the result, or follow its
    /// [events](Ensure::events).
    ///
    /// For one key there is only ever one sandbox, and for one definition one setup, however many
    /// programs ask at the same time.
    pub fn ensure(&self, asked: types::EnsureRequest) -> Ensure {
        Ensure::new(self.client.clone(), asked)
    }

    /// Returns what [`Dormouse::ensure`] would do and why, and changes nothing.
    pub async fn explain(&self, asked: &types::EnsureRequest) -> Result<types::EnsureExplanation, ClientError> {
        self.client.explain_ensure(asked).await
    }

    /// Follows the events of all sandboxes after the one with this number; 0 begins with the oldest
    /// that is kept.
    pub async fn events(&self, after: u64) -> Result<EventStream, ClientError> {
        EventStream::open(self.client.clone(), None, after).await
    }

    /// Returns which sandboxes and snapshots were created from which. With `all`, also those that
    /// are terminated.
    pub async fn tree(&self, all: bool) -> Result<types::Tree, ClientError> {
        self.client.tree(None, all).await
    }

    /// Returns the differences between the files of two snapshots or sandboxes.
    pub async fn diff(&self, from: &str, to: &str) -> Result<types::Diff, ClientError> {
        self.client.diff(from, to, types::DiffOrder::Given).await
    }

    /// Pulls an image from a registry. Await [`Progress::finish`] for the image.
    pub async fn pull_image(&self, asked: &types::PullImage) -> Result<Progress<types::Image>, ClientError> {
        Ok(Progress::new(self.client.pull_image(asked).await?))
    }
}
