//! The kinds of failure: one word for each, the same in responses, records and the error codes of
//! every API.

/// The kind of a failure, which an API maps to its own codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// The request is invalid.
    InvalidArgument,
    /// The resource it names does not exist.
    NotFound,
    /// It conflicts with the current state.
    Conflict,
    /// The resource has ended and will not return.
    Gone,
    /// No process listens on that port in the sandbox.
    PortClosed,
    /// The host has no room for it now.
    NoRoom,
    /// It exceeded its time limit.
    TimedOut,
    /// A file that must be on the disk of this host is damaged or missing.
    Damaged,
    /// It was tried and failed; nothing was lost.
    Failed,
    /// The daemon is stopping, or the component it depends on does not respond.
    Unavailable,
    /// The record cannot be read. It is left as it is, with everything that it may need.
    Unreadable,
    /// The store failed.
    StoreFailed,
    /// An internal error of Dormouse.
    Internal,
}

impl Code {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::InvalidArgument,
        Self::NotFound,
        Self::Conflict,
        Self::Gone,
        Self::PortClosed,
        Self::NoRoom,
        Self::TimedOut,
        Self::Damaged,
        Self::Failed,
        Self::Unavailable,
        Self::Unreadable,
        Self::StoreFailed,
        Self::Internal,
    ];

    /// Its word in responses and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::PortClosed => "port_closed",
            Self::NoRoom => "no_room",
            Self::TimedOut => "timed_out",
            Self::Damaged => "damaged",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
            Self::Unreadable => "unreadable",
            Self::StoreFailed => "store_failed",
            Self::Internal => "internal",
        }
    }
}
