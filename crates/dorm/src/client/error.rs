//! The errors of requests to the daemon.

use std::path::PathBuf;

use dorm_api_types as wire;
use thiserror::Error;

/// An error of a request to the daemon.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// The text is not the address of a daemon.
    #[error("'{0}' is not the address of a daemon")]
    Address(String),
    /// The HTTP client cannot be created.
    #[error("cannot start an HTTP client")]
    Start {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The file with a certificate authority cannot be used.
    #[error("cannot use the certificate authority in {}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls {
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// Nothing listens at the address.
    #[error("no daemon answers at {server}")]
    Unreachable {
        /// The daemon.
        server: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection failed during a request.
    #[error("the connection to {server} failed")]
    Broken {
        /// The daemon.
        server: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A stream ended before its last event.
    #[error("{server} ended the stream early")]
    Ended {
        /// The daemon.
        server: String,
    },
    /// The daemon refused the request.
    #[error("{}", error.detail)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error that the daemon returned.
        error: Box<wire::Problem>,
    },
    /// The response does not come from a daemon.
    #[error("{server} answered with status {status} but is not a Dormouse daemon")]
    Foreign {
        /// The address.
        server: String,
        /// The HTTP status.
        status: u16,
    },
    /// The response is not what this version expects.
    #[error("cannot parse the response of {server}")]
    Unreadable {
        /// The daemon.
        server: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    /// Whether what was named does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether another attempt of the same request would be refused, too.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status < 500)
    }

    /// Whether the daemon could not be reached, or stops: nothing is known of the result.
    pub(crate) fn is_outage(&self) -> bool {
        !matches!(self, Self::Refused { error, .. } if error.code != "unavailable")
    }

    /// Returns the refusal that an event in a stream reports, where only its body has a status.
    pub(crate) fn refused_in_stream(error: wire::Problem) -> Self {
        Self::Refused { status: error.status, error: Box::new(error) }
    }
}
