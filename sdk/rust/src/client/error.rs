//! The error of the client.

use std::path::PathBuf;
use std::time::Duration;

use dorm_api_types as wire;
use thiserror::Error;

/// Why a request failed, or why a command did not succeed.
///
/// [`code`](ClientError::code) is for programs, the text and [`next_step`](ClientError::next_step)
/// are for people. The causes are in [`source`](std::error::Error::source).
#[derive(Debug, Error)]
pub enum ClientError {
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
    /// The request cannot be sent, such as for an API key with a line break in it.
    #[error("the request is not valid")]
    Request {
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
    /// Nothing listens at the address. The daemon has not received the request.
    #[error("no daemon answers at {server}")]
    Unreachable {
        /// The daemon.
        server: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection failed during a request. The daemon may have carried it out.
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
    /// The daemon refused the request, or could not carry it out.
    #[error("{}", error.detail)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error that the daemon returned.
        error: Box<wire::Problem>,
        /// After which time another attempt may succeed, if the daemon says so.
        retry_after: Option<Duration>,
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
    /// A file or a command in a sandbox has bytes that are not UTF-8 where text was asked for.
    #[error("{what} is not UTF-8")]
    NotText {
        /// The name of it, such as the path of a file.
        what: String,
        /// The cause.
        #[source]
        source: std::string::FromUtf8Error,
    },
    /// A command did not exit with code 0, and the caller wanted an error then.
    #[error("the command {outcome}")]
    Command {
        /// How it ended, in words: `exited with code 1`.
        outcome: String,
        /// How it ended.
        status: wire::ExitStatus,
        /// The end of its standard error, at most 2,000 characters.
        stderr: String,
    },
}

impl ClientError {
    /// Returns the kind of the error, for programs: a code of the API such as `not_found` or
    /// `conflict`, or one of `invalid_address`, `invalid_request`, `tls`, `unreachable`,
    /// `connection_lost`, `not_a_daemon`, `unreadable_response`, `not_text`, `command_failed` and
    /// `client` if the daemon did not refuse the request.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { error, .. } => &error.code,
            Self::Address(_) => "invalid_address",
            Self::Request { .. } => "invalid_request",
            Self::Start { .. } => "client",
            Self::Authority { .. } | Self::Tls { .. } => "tls",
            Self::Unreachable { .. } => "unreachable",
            Self::Broken { .. } | Self::Ended { .. } => "connection_lost",
            Self::Foreign { .. } => "not_a_daemon",
            Self::Unreadable { .. } => "unreadable_response",
            Self::NotText { .. } => "not_text",
            Self::Command { .. } => "command_failed",
        }
    }

    /// Returns the next thing to do, for people. It is empty if the text says everything.
    pub fn next_step(&self) -> &str {
        match self {
            Self::Refused { error, .. } => &error.next_step,
            Self::Address(_) => "give an address such as http://127.0.0.1:7070 or https://dorm.example.org",
            Self::Unreachable { .. } => "start `dorm serve`, or give its address in DORM_SERVER",
            Self::Broken { .. } | Self::Ended { .. } => "look at the object that the request names, then try again",
            Self::Foreign { .. } => "give the address of the daemon in DORM_SERVER",
            Self::Unreadable { .. } => "use the same version of the client as of the daemon",
            Self::Authority { .. } => "name a file in PEM in DORM_CA, such as the output of `dorm ca`",
            Self::NotText { .. } => "read the bytes",
            Self::Start { .. } | Self::Request { .. } | Self::Tls { .. } | Self::Command { .. } => "",
        }
    }

    /// Returns the HTTP status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Foreign { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether another attempt may succeed without a change by the caller.
    ///
    /// It may do the work twice, unless the request reads, or has the same [idempotency
    /// key](crate::Client::with_idempotency_key).
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { error, .. } => {
                ["unavailable", "timed_out", "failed", "no_answer", "no_room"].contains(&error.code.as_str())
            }
            _ => self.is_passing(),
        }
    }

    /// Returns after which time another attempt may succeed, if the daemon says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether what was named does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether another attempt of the same request would be refused, too.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status < 500)
    }

    /// Whether the client itself may send the request again, if that is safe.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Ended { .. } => true,
            Self::Refused { error, .. } => error.code == "unavailable",
            // A proxy answers so while the daemon behind it restarts.
            Self::Foreign { status, .. } => (502..=504).contains(status),
            _ => false,
        }
    }

    /// Returns the refusal that an event in a stream reports, where only its body has a status.
    pub(crate) fn refused_in_stream(error: wire::Problem) -> Self {
        Self::Refused { status: error.status, error: Box::new(error), retry_after: None }
    }
}
