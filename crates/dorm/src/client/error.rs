//! Why the daemon could not be asked, or what it refused.

use dorm_api::wire;
use thiserror::Error;

/// What went wrong between this program and the daemon.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// The text is no address of a daemon.
    #[error("'{0}' is not the address of a daemon")]
    Address(String),
    /// The HTTP client itself does not work.
    #[error("cannot start an HTTP client")]
    Start {
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// Nothing listens there.
    #[error("no daemon answers at {server}")]
    Unreachable {
        /// Where.
        server: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke in the middle of a request.
    #[error("the connection to {server} broke")]
    Broken {
        /// Where to.
        server: String,
        /// How.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A stream ended before it had said its last word.
    #[error("{server} ended the stream early")]
    Ended {
        /// Who.
        server: String,
    },
    /// The daemon says no.
    #[error("{}", error.detail)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        error: wire::Problem,
    },
    /// Something answers, but not a daemon.
    #[error("{server} answered {status} in words that no Dormouse daemon uses")]
    Foreign {
        /// Who.
        server: String,
        /// The HTTP status.
        status: u16,
    },
    /// The answer is not what this version expects.
    #[error("an answer of {server} cannot be read")]
    Unreadable {
        /// Whose.
        server: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    /// An error in the middle of a stream, where only its body has a status.
    pub(crate) fn refused_in_stream(error: wire::Problem) -> Self {
        Self::Refused { status: error.status, error }
    }
}
