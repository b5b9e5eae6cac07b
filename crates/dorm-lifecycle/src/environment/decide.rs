//! The choice between what exists and what would have to be made.

use super::{OnBroken, OnDrift, Policy, words};
use crate::SnapshotId;
use std::time::Duration;

words! {
    /// A way to a sandbox. They are considered in this order.
    Way {
        /// It runs.
        Live "live",
        /// It is resumed.
        Resume "resume",
        /// It is restored from the latest snapshot of the environment.
        OwnSnapshot "own_snapshot",
        /// It is restored from a snapshot of the same workspace that another environment has made.
        WorkspaceSnapshot "workspace_snapshot",
        /// It is created and set up.
        Create "create",
    }
}

/// A way that was considered, and the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Considered {
    /// The way.
    pub way: Way,
    /// The result.
    pub verdict: Verdict,
}

/// Whether a way can be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is taken.
    Taken,
    /// There is nothing to use.
    Unavailable(String),
    /// There is something, but it cannot be used.
    Broken(String),
}

/// Everything that exists for an environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its sandbox.
    pub sandbox: SandboxFact,
    /// The time since its sandbox was created.
    pub sandbox_age: Duration,
    /// Its latest snapshot.
    pub own: SnapshotFact,
    /// The latest snapshot of the same workspace.
    pub of_workspace: SnapshotFact,
    /// The parts of the workspace that are not as recorded.
    pub drift: Vec<&'static str>,
}

/// The state of the sandbox of an environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SandboxFact {
    /// There is none, with the reason.
    None(String),
    /// It runs.
    Live,
    /// It is suspended.
    Suspended,
    /// It exists but cannot be used on this way, with the reason.
    Broken(Way, String),
}

/// The state of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotFact {
    /// There is none, with the reason.
    None(String),
    /// It can be restored.
    Usable {
        /// The snapshot.
        id: SnapshotId,
        /// The time since it was taken.
        age: Duration,
    },
    /// It exists but cannot be restored, with the reason.
    Broken(String),
}

/// The environment that a snapshot was taken of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SnapshotOf {
    /// The environment itself.
    Own,
    /// Any with the same workspace.
    Workspace,
}

/// The result of [`decide`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The ways that were considered, in order. If the choice is a way, that is the last one.
    pub considered: Vec<Considered>,
    /// The choice.
    pub choice: Choice,
}

/// The way to take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Use the running sandbox.
    Live,
    /// Resume the sandbox.
    Resume,
    /// Restore a snapshot.
    Restore {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The environment it was taken of.
        of: SnapshotOf,
        /// The time since it was taken.
        age: Duration,
    },
    /// Create and set up a sandbox.
    Create,
    /// Refuse: the workspace is not as recorded.
    RefuseDrift,
    /// Refuse: something is broken, on the last way that was considered.
    RefuseBroken(String),
}

/// Chooses the way to a sandbox.
pub fn decide(facts: &Facts, policy: &Policy) -> Decision {
    let mut deciding = Deciding { considered: Vec::new(), policy };
    let choice = deciding.choose(facts);
    Decision { considered: deciding.considered, choice }
}

struct Deciding<'a> {
    considered: Vec<Considered>,
    policy: &'a Policy,
}

impl Deciding<'_> {
    fn choose(&mut self, facts: &Facts) -> Choice {
        let is_drift = !facts.drift.is_empty();
        match self.policy.on_drift {
            OnDrift::Refuse if is_drift => return Choice::RefuseDrift,
            OnDrift::Rebuild if is_drift => {
                let reason = format!("the definition has changed: {}", facts.drift.join(", "));
                for way in [Way::Live, Way::Resume, Way::OwnSnapshot] {
                    self.unavailable(way, reason.clone());
                }
            }
            OnDrift::Refuse | OnDrift::Keep | OnDrift::Rebuild => {
                if let Some(choice) = self.sandbox(&facts.sandbox, facts.sandbox_age) {
                    return choice;
                }
                if let Some(choice) = self.snapshot(Way::OwnSnapshot, SnapshotOf::Own, &facts.own) {
                    return choice;
                }
            }
        }
        if let Some(choice) = self.snapshot(Way::WorkspaceSnapshot, SnapshotOf::Workspace, &facts.of_workspace) {
            return choice;
        }
        self.taken(Way::Create);
        Choice::Create
    }

    fn sandbox(&mut self, fact: &SandboxFact, age: Duration) -> Option<Choice> {
        let is_old = self.policy.sandbox_max_age.is_some_and(|max| age > max);
        match fact {
            SandboxFact::Live | SandboxFact::Suspended if is_old => {
                let reason = format!("the sandbox is {} s old, which is more than the request allows", age.as_secs());
                self.unavailable(Way::Live, reason.clone());
                self.unavailable(Way::Resume, reason);
            }
            SandboxFact::Live => {
                self.taken(Way::Live);
                return Some(Choice::Live);
            }
            SandboxFact::Suspended => {
                self.unavailable(Way::Live, "the sandbox is suspended");
                self.taken(Way::Resume);
                return Some(Choice::Resume);
            }
            SandboxFact::None(reason) => {
                self.unavailable(Way::Live, reason.clone());
                self.unavailable(Way::Resume, reason.clone());
            }
            SandboxFact::Broken(Way::Resume, reason) => {
                self.unavailable(Way::Live, "the sandbox is suspended");
                return self.broken(Way::Resume, reason);
            }
            SandboxFact::Broken(way, reason) => {
                if let Some(refused) = self.broken(*way, reason) {
                    return Some(refused);
                }
                self.unavailable(Way::Resume, "the sandbox is not suspended");
            }
        }
        None
    }

    fn snapshot(&mut self, way: Way, of: SnapshotOf, fact: &SnapshotFact) -> Option<Choice> {
        match fact {
            SnapshotFact::Usable { id, age } => match self.policy.snapshot_max_age {
                Some(max) if *age > max => {
                    let (age, max) = (age.as_secs(), max.as_secs());
                    self.unavailable(way, format!("snapshot {id} is {age} s old, and at most {max} s are allowed"));
                    None
                }
                Some(_) | None => {
                    self.taken(way);
                    Some(Choice::Restore { snapshot: id.clone(), of, age: *age })
                }
            },
            SnapshotFact::None(reason) => {
                self.unavailable(way, reason.clone());
                None
            }
            SnapshotFact::Broken(reason) => self.broken(way, reason),
        }
    }

    fn taken(&mut self, way: Way) {
        self.considered.push(Considered { way, verdict: Verdict::Taken });
    }

    fn unavailable(&mut self, way: Way, reason: impl Into<String>) {
        self.considered.push(Considered { way, verdict: Verdict::Unavailable(reason.into()) });
    }

    /// Notes what is broken; returns the refusal, unless the next way may be taken.
    fn broken(&mut self, way: Way, reason: &str) -> Option<Choice> {
        self.considered.push(Considered { way, verdict: Verdict::Broken(reason.to_owned()) });
        match self.policy.on_broken {
            OnBroken::Refuse => Some(Choice::RefuseBroken(reason.to_owned())),
            OnBroken::Next => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(number: u8) -> SnapshotId {
        SnapshotId::from_random([number; 20])
    }

    fn usable(number: u8, age_secs: u64) -> SnapshotFact {
        SnapshotFact::Usable { id: snapshot(number), age: Duration::from_secs(age_secs) }
    }

    fn nothing() -> Facts {
        Facts {
            sandbox: SandboxFact::None("there is none".to_owned()),
            sandbox_age: Duration::from_secs(100),
            own: SnapshotFact::None("none was taken".to_owned()),
            of_workspace: SnapshotFact::None("none was taken".to_owned()),
            drift: Vec::new(),
        }
    }

    fn restore(number: u8, of: SnapshotOf, age_secs: u64) -> Choice {
        Choice::Restore { snapshot: snapshot(number), of, age: Duration::from_secs(age_secs) }
    }

    fn ways(decision: &Decision) -> Vec<Way> {
        decision.considered.iter().map(|considered| considered.way).collect()
    }

    #[test]
    fn the_first_available_way_is_taken() {
        let (all, policy) = (Way::ALL, Policy::default());
        let mut facts = nothing();
        let decision = decide(&facts, &policy);
        assert_eq!((ways(&decision).as_slice(), decision.choice), (all, Choice::Create));
        facts.of_workspace = usable(2, 60);
        let decision = decide(&facts, &policy);
        assert_eq!((ways(&decision).as_slice(), decision.choice), (&all[..4], restore(2, SnapshotOf::Workspace, 60)));
        facts.own = usable(1, 60);
        let decision = decide(&facts, &policy);
        assert_eq!((ways(&decision).as_slice(), decision.choice), (&all[..3], restore(1, SnapshotOf::Own, 60)));
        facts.sandbox = SandboxFact::Suspended;
        let decision = decide(&facts, &policy);
        assert_eq!((ways(&decision).as_slice(), decision.choice), (&all[..2], Choice::Resume));
        facts.sandbox = SandboxFact::Live;
        let decision = decide(&facts, &policy);
        assert_eq!((ways(&decision).as_slice(), decision.choice), (&all[..1], Choice::Live));
    }

    #[test]
    fn a_snapshot_that_is_too_old_is_not_restored() {
        let policy = Policy { snapshot_max_age: Some(Duration::from_secs(60)), ..Policy::default() };
        let facts = Facts { own: usable(1, 61), of_workspace: usable(2, 60), ..nothing() };
        assert_eq!(decide(&facts, &policy).choice, restore(2, SnapshotOf::Workspace, 60));
        let facts = Facts { own: usable(1, 61), of_workspace: usable(2, 90), ..nothing() };
        assert_eq!(decide(&facts, &policy).choice, Choice::Create);
        // The age of a snapshot says nothing about a sandbox that lives.
        let facts = Facts { sandbox: SandboxFact::Suspended, own: usable(1, 61), ..nothing() };
        assert_eq!(decide(&facts, &policy).choice, Choice::Resume);
    }

    #[test]
    fn a_sandbox_that_is_too_old_is_not_used() {
        for sandbox in [SandboxFact::Live, SandboxFact::Suspended] {
            let facts = Facts { sandbox, own: usable(1, 0), ..nothing() };
            let of = |max| {
                let sandbox_max_age = Some(Duration::from_secs(max));
                decide(&facts, &Policy { sandbox_max_age, ..Policy::default() }).choice
            };
            assert!(matches!(of(100), Choice::Live | Choice::Resume));
            assert_eq!(of(99), restore(1, SnapshotOf::Own, 0));
        }
    }

    #[test]
    fn something_broken_is_passed_only_if_that_is_allowed() {
        let why = "its image is damaged".to_owned();
        let broken = [
            Facts { sandbox: SandboxFact::Broken(Way::Live, why.clone()), own: usable(1, 0), ..nothing() },
            Facts { sandbox: SandboxFact::Broken(Way::Resume, why.clone()), own: usable(1, 0), ..nothing() },
            Facts { own: SnapshotFact::Broken(why.clone()), of_workspace: usable(1, 0), ..nothing() },
            Facts { of_workspace: SnapshotFact::Broken(why.clone()), ..nothing() },
        ];
        for facts in broken {
            let decision = decide(&facts, &Policy::default());
            assert_eq!(decision.choice, Choice::RefuseBroken(why.clone()));
            assert_eq!(decision.considered.last().map(|last| &last.verdict), Some(&Verdict::Broken(why.clone())));
            let decision = decide(&facts, &Policy { on_broken: OnBroken::Next, ..Policy::default() });
            assert!(matches!(decision.choice, Choice::Restore { .. } | Choice::Create), "{decision:?}");
            let told = decision.considered.iter().any(|one| one.verdict == Verdict::Broken(why.clone()));
            assert!(told, "{decision:?}");
        }
    }

    #[test]
    fn drift_is_decided_by_the_policy() {
        let drift = vec!["base"];
        let facts =
            Facts { sandbox: SandboxFact::Live, own: usable(1, 0), of_workspace: usable(2, 0), drift, ..nothing() };
        let of = |on_drift| decide(&facts, &Policy { on_drift, ..Policy::default() }).choice;
        assert_eq!(of(OnDrift::Keep), Choice::Live);
        assert_eq!(of(OnDrift::Refuse), Choice::RefuseDrift);
        assert_eq!(of(OnDrift::Rebuild), restore(2, SnapshotOf::Workspace, 0));
    }
}
