//! Where room for a run is missing.

/// Where there was too little room for a request, which decides whether it waits, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// In the budgets of its project, for which no other project waits.
    OfProject,
    /// On the host, for which requests of all projects wait in turn.
    OfHost,
    /// In the budgets of its project, of something that no resume needs.
    OfProjectForCreates,
    /// On the host, of something that no resume needs.
    OfHostForCreates,
    /// Everywhere: the request exceeds a budget even alone.
    Permanent,
    /// In a pool: none of its sandboxes is ready.
    OfPool,
}

impl Shortage {
    /// Returns what the caller can do next.
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::OfProject | Self::OfProjectForCreates => {
                "suspend or terminate sandboxes of the project, delete snapshots, or raise its budgets"
            }
            Self::OfHost | Self::OfHostForCreates => {
                "suspend or terminate sandboxes, delete snapshots, or raise the daemon's budgets"
            }
            Self::Permanent => "request less, or raise the budget",
            Self::OfPool => "wait for one with --max-wait (max_wait_secs), or enlarge the pool",
        }
    }
}
