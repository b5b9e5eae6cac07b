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
         to terminate"
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
    /// The egress policy is invalid.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The attached volumes conflict.
    #[error(transparent)]
    Attachments(#[from] AttachmentError),
}
