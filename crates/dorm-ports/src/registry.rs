//! The port to image registries. Implementations fetch and verify; the result becomes an image in
//! the storage.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dorm_lifecycle::{ByteSize, Digest};
use futures_util::stream::BoxStream;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::progress::Progress;

/// Receives the progress of a pull, several times per second at most.
pub type PullProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// The content of a file, as a stream.
pub type FileContent = BoxStream<'static, std::io::Result<Bytes>>;

/// Image registries.
#[async_trait]
pub trait Registry: Debug + Send + Sync + 'static {
    /// Returns the full name that `reference` stands for, with its registry and its tag or digest.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Reference`].
    fn whole_name(&self, reference: &str) -> Result<String, RegistryError>;

    /// Returns whether `reference` names its registry. A reference that does not is never fetched
    /// implicitly.
    fn names_registry(&self, reference: &str) -> bool;

    /// Fetches an image into the storage, with the tag `tag`, and returns its digest. Parts that
    /// were fetched and verified before are not fetched again.
    ///
    /// # Errors
    ///
    /// Any [`RegistryError`]; then there is no new image.
    async fn pull(&self, asked: &RemoteSpec, tag: &str, progress: PullProgress) -> Result<Digest, RegistryError>;

    /// Sends the file of a snapshot, of `bytes` bytes. Parts that the registry has already are not
    /// sent again.
    ///
    /// # Errors
    ///
    /// Any [`RegistryError`]; then no name refers to it.
    async fn push_file(
        &self,
        to: &RemoteSpec,
        content: FileContent,
        bytes: u64,
        progress: PullProgress,
    ) -> Result<Pushed, RegistryError>;

    /// Fetches the file of a snapshot and sends it to `to`, until the receiver is dropped.
    ///
    /// # Errors
    ///
    /// Any [`RegistryError`]; then the file is incomplete.
    async fn fetch_file(
        &self,
        from: &RemoteSpec,
        to: &mpsc::Sender<std::io::Result<Bytes>>,
        progress: PullProgress,
    ) -> Result<(), RegistryError>;
}

/// The result of a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// The full name of the file.
    pub name: String,
    /// The digest of its manifest.
    pub manifest: String,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// How many bytes had to be sent.
    pub sent_bytes: u64,
}

/// An operation on a registry, for errors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryOperation {
    /// Pulling the named image or file.
    Pull(Box<str>),
    /// Pushing to that name.
    Push(Box<str>),
}

impl std::fmt::Display for RegistryOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pull(name) => write!(f, "pull {name}"),
            Self::Push(name) => write!(f, "push to {name}"),
        }
    }
}

/// A request for an image or snapshot of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteSpec {
    /// Its reference: `HOST/NAME`, with `:TAG` or `@sha256:DIGEST`.
    pub reference: String,
    /// The architecture; by default that of this host.
    pub architecture: Option<String>,
    /// Whether a registry on another host may be accessed without TLS.
    pub transport: Transport,
    /// Whose logins are used.
    pub logins: Logins,
    /// A login of the request itself, which is used instead of those.
    pub login: Option<Login>,
}

/// A login for one registry. Its password is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The password, or a token in its place.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The logins that a request to a registry uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Logins {
    /// Those of the daemon.
    #[default]
    Daemon,
    /// None: only what everyone may fetch, and only from addresses that registries may redirect to.
    None,
}

/// How registries on other hosts are accessed. Those on this host are accessed without TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// With TLS.
    #[default]
    Secure,
    /// Without TLS.
    Insecure,
}

/// Why an image could not be pulled or pushed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The reference is malformed.
    #[error("'{reference}' is not a valid image reference: {what}")]
    Reference {
        /// The reference.
        reference: String,
        /// The part that is malformed.
        what: &'static str,
    },
    /// No registry is configured.
    #[error("cannot pull '{0}': no registry is configured")]
    NoRegistries(String),
    /// The registry cannot be reached.
    #[error("cannot {name}: the registry {registry} cannot be reached")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// The last error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The registry denies access, with or without credentials.
    #[error("cannot {name}: the registry {registry} denies access ({what})")]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// Its answer, and the credentials used.
        what: String,
    },
    /// The registry has no such image.
    #[error("cannot {name}: the registry {registry} has no such image ({what})")]
    NotFound {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// Its answer.
        what: String,
    },
    /// The registry limits the rate of requests.
    #[error("cannot {name}: the registry {registry} allows no more requests for now{}", again(*.after))]
    RateLimited {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// When to retry, if the registry said so.
        after: Option<Duration>,
    },
    /// The registry gives another answer than expected.
    #[error("cannot {name}: the registry {registry} answers {what}")]
    Refused {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// Its answer.
        what: String,
    },
    /// The registry sends other data than announced.
    #[error("cannot {name}: the registry {registry} sends {what}")]
    Lies {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// The data, and what was expected.
        what: String,
    },
    /// The transfer ended too early or stalled, repeatedly.
    #[error("cannot {name}: the registry {registry} {how} after {got} of {bytes} bytes of {digest}, {tries} times")]
    Interrupted {
        /// The registry.
        registry: String,
        /// The operation.
        name: RegistryOperation,
        /// `stopped` or `said nothing more`.
        how: &'static str,
        /// The number of bytes received.
        got: u64,
        /// The number of bytes expected.
        bytes: u64,
        /// The digest of the blob.
        digest: String,
        /// The number of attempts.
        tries: u32,
    },
    /// The image would not fit on the disk.
    #[error("cannot {name}: {} are needed, and {} are free", ByteSize(*need_bytes), ByteSize(*free_bytes))]
    NoRoom {
        /// The operation.
        name: RegistryOperation,
        /// The number of bytes to fetch.
        need_bytes: u64,
        /// The number of free bytes.
        free_bytes: u64,
    },
    /// A file operation failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// The file operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The fetched data is not a valid image for this host.
    #[error("cannot {name}")]
    Storage {
        /// The operation.
        name: RegistryOperation,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn again(after: Option<Duration>) -> String {
    after.map_or_else(String::new, |after| format!("; retry in {} s", after.as_secs()))
}
