//! The port to where images come from that are not here. Who implements it fetches and checks; what it found becomes
//! an image of the pool.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dorm_pool::{Image, PoolError, Progress};
use thiserror::Error;

use crate::error::Code;

/// Who is told how far a pull is, several times a second at most.
pub type PullProgress = Arc<dyn Fn(Progress) + Send + Sync>;

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
}

/// An image that is to be fetched.
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
    #[error("cannot pull {name}: the registry {registry} cannot be reached")]
    Unreachable {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// What went wrong last.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The registry does not know us, or does not let us.
    #[error("cannot pull {name}: the registry {registry} does not let us ({what})")]
    Unauthorized {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// What it said, and how we had introduced ourselves.
        what: String,
    },
    /// There is no such image.
    #[error("cannot pull {name}: the registry {registry} has no such image ({what})")]
    NotFound {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// What it said.
        what: String,
    },
    /// The registry has had enough of us for now.
    #[error("cannot pull {name}: the registry {registry} lets us ask no more for now{}", again(*.after))]
    RateLimited {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// When to ask again, if it said so.
        after: Option<Duration>,
    },
    /// The registry answers something else.
    #[error("cannot pull {name}: the registry {registry} answers {what}")]
    Refused {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// What it answers.
        what: String,
    },
    /// The registry sends something else than it said.
    #[error("cannot pull {name}: the registry {registry} sends {what}")]
    Lies {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
        /// What, and what it should have been.
        what: String,
    },
    /// What it sends ended too early, or nothing came for too long, again and again.
    #[error(
        "cannot pull {name}: the registry {registry} {how} after {got} of {bytes} bytes of {digest}, {tries} times"
    )]
    Interrupted {
        /// Whom.
        registry: String,
        /// Which image.
        name: String,
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
    #[error("cannot pull {name}: {need_bytes} bytes are to be fetched, {free_bytes} are free")]
    NoRoom {
        /// Which image.
        name: String,
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
    #[error("cannot pull {name}")]
    Pool {
        /// Which image.
        name: String,
        /// Why not.
        #[source]
        source: PoolError,
    },
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
                "look at its name and the network, and pull again; an image that is here already can still be used"
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
