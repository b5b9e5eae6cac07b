//! What is recorded of a sandbox's life.

/// Who caused a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Actor {
    /// A caller of an API.
    User,
    /// A deadline that passed.
    Timer,
    /// Traffic that woke it.
    Traffic,
    /// The host: a run that ended by itself, memory that ran short.
    Host,
    /// The daemon, at its start.
    Recovery,
}

impl Actor {
    /// Every actor.
    pub const ALL: [Self; 5] = [Self::User, Self::Timer, Self::Traffic, Self::Host, Self::Recovery];

    /// Its word in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Timer => "timer",
            Self::Traffic => "traffic",
            Self::Host => "host",
            Self::Recovery => "recovery",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What happened.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its word in records and answers.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// It was asked for, and its record exists.
    Created = "created",
    /// Its first run began.
    Started = "started",
    /// Its first run could not begin.
    StartFailed = "start_failed",
    /// It is being suspended.
    Suspending = "suspending",
    /// Its memory and files are on disk, checked.
    Suspended = "suspended",
    /// It could not be suspended and goes on running.
    SuspendFailed = "suspend_failed",
    /// It is being resumed.
    Resuming = "resuming",
    /// It runs again, where it was.
    Resumed = "resumed",
    /// It could not be resumed and stays suspended; its image is untouched.
    ResumeFailed = "resume_failed",
    /// A snapshot of it is being taken.
    Snapshotting = "snapshotting",
    /// The snapshot is on disk, checked.
    SnapshotTaken = "snapshot_taken",
    /// The snapshot could not be taken; the source goes on running.
    SnapshotFailed = "snapshot_failed",
    /// A deadline passed.
    DeadlinePassed = "deadline_passed",
    /// Its time limits were changed.
    TimeoutsSet = "timeouts_set",
    /// Its run ended without having been asked to.
    RunLost = "run_lost",
    /// It is being terminated.
    Terminating = "terminating",
    /// It is over.
    Terminated = "terminated",
    /// What held it in memory was given back; its image is on disk.
    Evicted = "evicted",
    /// A process inside was killed because memory ran short.
    MemoryRelieved = "memory_relieved",
    /// The daemon found it and goes on with it.
    Recovered = "recovered",
    /// Somebody wants it to stay awake.
    Held = "held",
    /// A wish that it stays awake was taken back.
    Released = "released",
    /// What is kept to bring it back was changed.
    KeepingSet = "keeping_set",
    /// It came back with less than its newest image holds, as it was allowed to.
    Degraded = "degraded",
    /// Others were made of it.
    Forked = "forked",
    /// It is being taken back to a snapshot.
    Rewinding = "rewinding",
    /// It runs again, as it was in a snapshot.
    Rewound = "rewound",
    /// It could not be taken back, and is where it was.
    RewindFailed = "rewind_failed",
    /// Another took its place, with its memory and files.
    Promoted = "promoted",
    /// Which snapshots are taken of it by themselves was changed.
    CheckpointsSet = "checkpoints_set",
    /// A volume was attached to it.
    Attached = "attached",
    /// A volume was detached from it.
    Detached = "detached",
    /// A volume could not be attached or detached; it has those it had.
    AttachFailed = "attach_failed",
    /// It is paused, since the host's disk is nearly full.
    DiskPaused = "disk_paused",
    /// There is room on the host's disk again, and it goes on.
    DiskResumed = "disk_resumed",
    /// Its run lives and does not answer.
    Unreachable = "unreachable",
    /// Its run answers again.
    Reachable = "reachable",
    /// A file that it stands on, or wakes up from, is not what was written.
    Damaged = "damaged",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        let words: BTreeSet<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), EventKind::ALL.len());
    }
}
