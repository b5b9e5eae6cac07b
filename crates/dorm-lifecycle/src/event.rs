//! Events: the records of what happened to a sandbox.

/// The initiator of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Initiator {
    /// A caller of an API.
    User,
    /// A passed deadline.
    Timer,
    /// Traffic that woke the sandbox.
    Traffic,
    /// The host: a run that ended unexpectedly, or memory pressure.
    Host,
    /// The daemon, at startup.
    Recovery,
}

impl Initiator {
    /// Every initiator.
    pub const ALL: [Self; 5] = [Self::User, Self::Timer, Self::Traffic, Self::Host, Self::Recovery];

    /// Returns the word for it in records and answers.
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
        /// The kind of an event.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the word for it in records and answers.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

// A new kind is added at the end: the goldens of `dorm-store` depend on the order.
kinds! {
    /// The sandbox was requested, and its record exists.
    Created = "created",
    /// Its first run started.
    Started = "started",
    /// Its first run could not be started.
    StartFailed = "start_failed",
    /// It is being suspended.
    Suspending = "suspending",
    /// Its memory and files are on disk and verified.
    Suspended = "suspended",
    /// It could not be suspended and keeps running.
    SuspendFailed = "suspend_failed",
    /// It is being resumed.
    Resuming = "resuming",
    /// It runs again, where it stopped.
    Resumed = "resumed",
    /// It could not be resumed and stays suspended; its sleep image is intact.
    ResumeFailed = "resume_failed",
    /// A snapshot of it is being taken.
    Snapshotting = "snapshotting",
    /// The snapshot is on disk and verified.
    SnapshotTaken = "snapshot_taken",
    /// The snapshot could not be taken; the source keeps running.
    SnapshotFailed = "snapshot_failed",
    /// A deadline passed.
    DeadlinePassed = "deadline_passed",
    /// Its time limits were changed.
    TimeoutsSet = "timeouts_set",
    /// Its run ended unexpectedly.
    RunLost = "run_lost",
    /// It is being terminated.
    Terminating = "terminating",
    /// It is terminated.
    Terminated = "terminated",
    /// Its memory was released; its sleep image is on disk.
    Evicted = "evicted",
    /// A process inside was killed because of memory pressure.
    OomVictimKilled = "oom_victim_killed",
    /// The daemon found its run and continues it.
    Recovered = "recovered",
    /// A hold was placed on it.
    Held = "held",
    /// A hold was released.
    Released = "released",
    /// Its settings for keeping sleep images were changed.
    RetentionSet = "retention_set",
    /// It was restored with less than its newest image holds, as its settings permit.
    Degraded = "degraded",
    /// It was forked.
    Forked = "forked",
    /// It is being rewound to a snapshot.
    Rewinding = "rewinding",
    /// It runs again, as saved in a snapshot.
    Rewound = "rewound",
    /// It could not be rewound and is in its previous state.
    RewindFailed = "rewind_failed",
    /// Another sandbox took its place, with its memory and files.
    Promoted = "promoted",
    /// Its policy for automatic snapshots was changed.
    CheckpointsSet = "checkpoints_set",
    /// A volume was attached to it.
    Attached = "attached",
    /// A volume was detached from it.
    Detached = "detached",
    /// A volume could not be attached or detached; its volumes are unchanged.
    AttachFailed = "attach_failed",
    /// It is paused because the host's disk is nearly full.
    DiskPaused = "disk_paused",
    /// There is room on the host's disk again, and it continues.
    DiskResumed = "disk_resumed",
    /// Its run is alive but does not answer.
    Unreachable = "unreachable",
    /// Its run answers again.
    Reachable = "reachable",
    /// A file that it uses or would be restored from differs from what was written.
    Damaged = "damaged",
    /// Its egress policy was changed.
    EgressSet = "egress_set",
    /// Its egress policy could not be changed.
    EgressFailed = "egress_failed",
    /// Its name, its labels or another of its properties was changed.
    Updated = "updated",
    /// It was claimed from its pool.
    Claimed = "claimed",
    /// Its limits of CPU and memory were changed.
    Resized = "resized",
    /// Its limits of CPU and memory could not be changed.
    ResizeFailed = "resize_failed",
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
