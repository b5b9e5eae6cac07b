//! What a restarted daemon does about a sandbox, decided from its record and from what the host really runs.

/// What an engine found a run doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunCondition {
    /// Its guest runs.
    Running,
    /// Its guest stands still, but its processes use some CPU.
    Paused,
    /// Its guest stands still and no process of it uses any CPU.
    Parked,
    /// It was never begun to its end, or cannot be asked: only stopping it is safe.
    Broken,
}
