//! Where room for a run is missing.

/// Where there was too little room for a request, which decides whether it waits, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// In the budgets of its project, for which no other project waits.
    OfProject,
    /// On the host, for which requests of all projects wait in turn.
    OfHost,
    /// Everywhere: the request exceeds a budget even alone.
    Permanent,
}
