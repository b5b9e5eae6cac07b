//! The kinds of failure: one word for each, the same in answers, records and the codes of every edge.

/// The kind of a failure, for edges that map it to their own codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// The request cannot be meant like this.
    InvalidArgument,
    /// What it names is not there.
    NotFound,
    /// It does not fit what is there now.
    Conflict,
    /// It is over for ever.
    Gone,
    /// Nobody listens on that port inside.
    PortClosed,
    /// The host has no room for it now.
    NoRoom,
    /// It took longer than it may.
    TimedOut,
    /// Something that this host should have on its disk is damaged or missing.
    Damaged,
    /// It was tried and did not work; nothing was lost.
    Failed,
    /// The daemon is stopping, or what is asked does not answer.
    Unavailable,
    /// Its record cannot be read. It is left as it is, with everything that it may need.
    Unreadable,
    /// The store failed.
    StoreFailed,
    /// Something is wrong with Dormouse itself.
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

    /// Its word in answers and records.
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
