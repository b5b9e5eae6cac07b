//! The reasons why a request to a port is not forwarded. Each door gives them the form that its
//! clients know.

use dorm_service::{Code, ServiceError};

use dorm_lifecycle::Name;

use super::Target;
use crate::headers::HeaderError;

/// A request to a port of a sandbox that was not answered by the program inside.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The request is for a host name that this server does not answer to.
    #[error("this server does not serve the host '{0}'")]
    WrongHost(String),
    /// The headers of the request name no valid port.
    #[error("X-Dormouse-Port is '{0}'; ports are 1 to 65535")]
    NoPort(String),
    /// The headers of the request name no sandbox.
    #[error("there is no sandbox '{0}'")]
    NoSandbox(String),
    /// The request names a sandbox by its name, which can be guessed, and has no key.
    #[error("the request names the sandbox '{0}' by its name and has no API key")]
    NameWithoutKey(Name),
    /// A request to open a tunnel to somewhere else.
    #[error("CONNECT is not forwarded to ports of sandboxes")]
    Connect,
    /// A link that cannot be opened any more.
    #[error("this link was already opened, is older than a minute, or is for another port")]
    SpentLink,
    /// The request wants to wake more than traffic may.
    #[error("X-Dormouse-Wake of a request to a port can only be `never`")]
    Wake,
    /// A header that the gateway reads is repeated or unreadable.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The path cannot be sent to the program inside.
    #[error("invalid path: {0}")]
    InvalidPath(String),
    /// The port is private, and the request has no credentials for it.
    #[error("port {} of sandbox {} is private", .0.port, .0.sandbox)]
    Private(Target),
    /// Too many connections without a key are open.
    #[error("too many connections to ports of sandboxes are open")]
    Crowded,
    /// The program accepted the connection and sent no HTTP response.
    #[error("the program on port {} of sandbox {} sent no HTTP response", .0.port, .0.sandbox)]
    Silent(Target),
    /// The sandbox does not exist, could not be woken, or nothing listens on the port.
    #[error("{}", .0.message())]
    Unreachable(ServiceError),
}

impl PortError {
    /// Whether the same request may succeed a moment later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Crowded => true,
            Self::Unreachable(error) => match error.code() {
                // The sandbox could not be resumed now. It stays suspended.
                Code::Failed | Code::NoRoom => true,
                Code::InvalidArgument
                | Code::NotFound
                | Code::Conflict
                | Code::Gone
                | Code::PortClosed
                | Code::Unavailable
                | Code::TimedOut
                | Code::Damaged
                | Code::Unreadable
                | Code::StoreFailed
                | Code::Internal => false,
            },
            Self::WrongHost(_)
            | Self::NoPort(_)
            | Self::NoSandbox(_)
            | Self::NameWithoutKey(_)
            | Self::Connect
            | Self::SpentLink
            | Self::Wake
            | Self::Header(_)
            | Self::InvalidPath(_)
            | Self::Private(_)
            | Self::Silent(_) => false,
        }
    }

    /// The next step for the caller; empty if the message says it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::WrongHost(_) => "use localhost, an IP address, or a domain given with `dorm serve --domain`",
            Self::NoPort(_) => "send X-Dormouse-Sandbox and X-Dormouse-Port together",
            Self::NoSandbox(_) => "use the ID of the sandbox",
            Self::NameWithoutKey(_) => "send a key of its project, or use the ID of the sandbox",
            Self::Connect => "use an HTTP upgrade",
            Self::SpentLink => "create a new link with `dorm sbx port --link`",
            Self::Wake => "omit the header, or change the wake policy of the sandbox",
            Self::Header(error) => error.next_step(),
            Self::InvalidPath(_) => "",
            Self::Private(_) => {
                "send its token as X-Dormouse-Token, or open a link from `dorm sbx port --link` in a browser"
            }
            Self::Crowded => "close some connections",
            Self::Silent(_) => "check the program that listens on the port, and its output",
            Self::Unreachable(error) => error.next_step(),
        }
    }
}
