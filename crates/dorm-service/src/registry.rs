//! The port to where images come from that are not here. Who implements it fetches and checks; what it found becomes
//! an image of the pool.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dorm_pool::{Image, PoolError, Progress};
use dorm_store::Code;
use futures_util::stream::BoxStream;
use thiserror::Error;
use tokio::sync::mpsc;

/// Who is told how far a pull is, several times a second at most.
pub type PullProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// A file as it comes.
pub type FileContent = BoxStream<'static, std::io::Result<Bytes>>;

/// Registries of images.
#[async_trait]
pub trait Registry: Debug + Send + Sync + 'static {
    /// The whole name of what `reference` means, with its registry, and its tag or digest.
    ///
    /// # Errors
    /// [`RegistryError::Reference`].
    fn whole_name(&self, reference: &str) -> Result<String, RegistryError>;

    /// Whether `reference` names its registry. What does not is never fetched without being asked for.
    fn names_registry(&self, reference: &str) -> bool;

    /// Fetches an image and makes it one of the pool, with the tag `tag`. What was fetched and checked before is not
    /// fetched again.
    ///
    /// # Errors
    /// Any [`RegistryError`]; then there is no new image.
    async fn pull(&self, asked: &Pull, tag: &str, progress: PullProgress) -> Result<Image, RegistryError>;

    /// Sends the file of a snapshot, which has `bytes`. What of it is there already is not sent again.
    ///
    /// # Errors
    /// Any [`RegistryError`]; then no name means it.
    async fn push_file(
        &self,
        to: &Pull,
        content: FileContent,
        bytes: u64,
        progress: PullProgress,
    ) -> Result<Pushed, RegistryError>;

    /// Fetches the file of a snapshot and gives it to `to`, until nobody listens any more.
    ///
    /// # Errors
    /// Any [`RegistryError`]; then not all of it has come.
    async fn fetch_file(
        &self,
        from: &Pull,
        to: &mpsc::Sender<std::io::Result<Bytes>>,
        progress: PullProgress,
    ) -> Result<(), RegistryError>;
}

/// A file that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// Its whole name.
    pub name: String,
    /// The digest of its manifest.
    pub manifest: String,
    /// How long it is.
    pub bytes: u64,
    /// What of it had to be sent.
    pub sent_bytes: u64,
}

/// What is asked of a registry, for errors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// To give what has that name.
    Pull(Box<str>),
    /// To take what is to have that name.
    Push(Box<str>),
}

impl std::fmt::Display for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pull(name) => write!(f, "pull {name}"),
            Self::Push(name) => write!(f, "push to {name}"),
        }
    }
}

/// An image or snapshot of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pull {
    /// What it is called: `HOST/NAME`, with `:TAG` or `@sha256:DIGEST`.
    pub reference: String,
    /// For which architecture; this host's by default.
    pub architecture: Option<String>,
    /// Whether the registry may be asked without TLS though it is on another host.
    pub transport: Transport,
}

/// How registries on other hosts are spoken to. Those on this host are asked without TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// With TLS.
    #[default]
    Secure,
    /// Without.
    Insecure,
}

/// Why an image could not be fetched.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// It cannot be the name of an image.
    #[error("'{reference}' cannot be an image of a registry: {what}")]
    Reference {
        /// What was given.
        reference: String,
        /// Why not.
        what: &'static str,
    },
    /// This daemon has no registries.
    #[error("cannot pull '{0}': this daemon knows no registries")]
    NoRegistries(String),
    /// Nobody answers.
    #[error("cannot {name}: the registry {registry} cannot be reached")]
    Unreachable {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// What went wrong last.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The registry does not know us, or does not let us.
    #[error("cannot {name}: the registry {registry} does not let us ({what})")]
    Unauthorized {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// What it said, and how we had introduced ourselves.
        what: String,
    },
    /// There is no such image.
    #[error("cannot {name}: the registry {registry} has no such image ({what})")]
    NotFound {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// What it said.
        what: String,
    },
    /// The registry has had enough of us for now.
    #[error("cannot {name}: the registry {registry} lets us ask no more for now{}", again(*.after))]
    RateLimited {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// When to ask again, if it said so.
        after: Option<Duration>,
    },
    /// The registry answers something else.
    #[error("cannot {name}: the registry {registry} answers {what}")]
    Refused {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// What it answers.
        what: String,
    },
    /// The registry sends something else than it said.
    #[error("cannot {name}: the registry {registry} sends {what}")]
    Lies {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// What, and what it should have been.
        what: String,
    },
    /// What it sends ended too early, or nothing came for too long, again and again.
    #[error("cannot {name}: the registry {registry} {how} after {got} of {bytes} bytes of {digest}, {tries} times")]
    Interrupted {
        /// Whom.
        registry: String,
        /// What was done, with what.
        name: Deed,
        /// `stopped` or `said nothing more`.
        how: &'static str,
        /// How much is here.
        got: u64,
        /// How much there is.
        bytes: u64,
        /// Of which blob.
        digest: String,
        /// How often.
        tries: u32,
    },
    /// It would not fit.
    #[error("cannot {name}: {need_bytes} bytes are to be fetched, {free_bytes} are free")]
    NoRoom {
        /// What was done, with what.
        name: Deed,
        /// How much is to be fetched.
        need_bytes: u64,
        /// How much is free.
        free_bytes: u64,
    },
    /// The disk refused.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was done.
        operation: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What was fetched cannot be an image here.
    #[error("cannot {name}")]
    Pool {
        /// What was done, with what.
        name: Deed,
        /// Why not.
        #[source]
        source: PoolError,
    },
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn again(after: Option<Duration>) -> String {
    after.map_or_else(String::new, |after| format!(", but in {} s again", after.as_secs()))
}

impl RegistryError {
    /// Its kind.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Reference { .. } | Self::NoRegistries(_) | Self::Unauthorized { .. } => Code::InvalidArgument,
            Self::NotFound { .. } => Code::NotFound,
            Self::Unreachable { .. } | Self::RateLimited { .. } | Self::Interrupted { .. } => Code::Unavailable,
            Self::Io { source, .. } if is_full(source) => Code::NoRoom,
            Self::Refused { .. } | Self::Lies { .. } | Self::Io { .. } => Code::Failed,
            Self::NoRoom { .. } => Code::NoRoom,
            Self::Pool { source, .. } => crate::error::pool_code(source),
        }
    }

    /// What to do next.
    pub(crate) fn next_step(&self) -> &'static str {
        match self {
            Self::Reference { .. } => "name it as HOST/NAME:TAG, such as docker.io/library/python:3.12",
            Self::NoRegistries(_) => "import the image from a file or directory",
            Self::Unreachable { .. } => {
                "look at its name and the network, and try again; an image that is here already can still be used"
            }
            Self::Unauthorized { .. } => {
                "look at the name, or log in with `docker login` as the user the daemon runs as"
            }
            Self::NotFound { .. } => "look at name and tag",
            Self::RateLimited { .. } => "pull again later, or log in: what was fetched is kept",
            Self::Interrupted { .. } => "pull again: what was fetched is kept",
            Self::Refused { .. } => "pull again later, or ask who runs the registry",
            Self::Lies { .. } => "ask who runs the registry; nothing of it is kept",
            Self::NoRoom { .. } => "remove images or snapshots that are not needed",
            Self::Io { .. } => "look at the disk of the daemon's data directory",
            Self::Pool { .. } => "",
        }
    }
}
