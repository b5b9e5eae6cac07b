//! Why the requested properties of a sandbox are refused.

use thiserror::Error;

use crate::egress::EgressError;
use crate::volume::AttachmentError;

/// Why requested properties are invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// A value is out of range.
    #[error("{what} is {asked}: it must be between {least} and {most}")]
    Resource {
        /// The field.
        what: &'static str,
        /// The requested value.
        asked: u64,
        /// The smallest valid value.
        least: u64,
        /// The largest valid value.
        most: u64,
    },
    /// `on_timeout` is `suspend`, but the sandbox is not suspendable.
    #[error(
        "a sandbox that is not suspendable cannot be suspended on timeout: give it a name, or set on_timeout \
         to suspend_files or terminate"
    )]
    SuspendWithoutName,
    /// A timeout of zero.
    #[error("{0} is zero: omit it for no limit")]
    ZeroTimeout(&'static str),
    /// The name of an environment variable is empty or contains `=` or NUL, or its value contains
    /// NUL.
    #[error(
        "'{0}' is not a valid environment variable: its name must not be empty or contain '=' or NUL, and \
         its value must not contain NUL"
    )]
    Variable(String),
    /// A text that cannot be the host of requests to a port.
    #[error("'{0}' is not a host for requests to ports: give a host such as localhost:{{port}}, up to 255 characters")]
    PortHost(String),
    /// More rules for single ports than a sandbox can have.
    #[error("{0} rules for ports: a sandbox can have 64; set the access of all ports for the others")]
    TooManyPortRules(usize),
    /// A rule for a port that says nothing.
    #[error("the rule for port {0} is invalid: a rule has an access or a host, and ports are 1 to 65535")]
    PortRule(u16),
    /// The name of a program or the key of an annotation.
    #[error("'{0}' is not a valid name or key of annotations: it must have 1 to 128 bytes and no control characters")]
    Annotation(String),
    /// The egress policy is invalid.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The attached volumes conflict.
    #[error(transparent)]
    Attachments(#[from] AttachmentError),
}

impl SpecError {
    /// Returns what the caller can do next, as a sentence; empty if the message already says it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Resource { .. } => "give a value in this range",
            Self::Variable(_) => "correct or omit this variable",
            Self::PortRule(_) => "give the rule an access or a host, or omit it",
            Self::SuspendWithoutName
            | Self::ZeroTimeout(_)
            | Self::PortHost(_)
            | Self::TooManyPortRules(_)
            | Self::Annotation(_)
            | Self::Egress(_)
            | Self::Attachments(_) => "",
        }
    }
}
