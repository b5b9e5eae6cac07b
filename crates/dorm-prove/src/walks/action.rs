//! The actions of a walk, and how they are chosen: from the seed and the model alone, so that a
//! seed replays.

use super::walk::Walk;
use crate::world::Stage;

/// The most sandboxes that live at once, and the most snapshots.
const SANDBOXES: usize = 5;
const SNAPSHOTS: usize = 6;

/// An action. Numbers are indexes of the model's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Create { named: bool },
    Restore { shot: usize, named: bool },
    Work { body: usize },
    Suspend { body: usize },
    Resume { body: usize },
    Evict { body: usize },
    Checkpoint { body: usize, kind: &'static str },
    Clone { body: usize, named: bool },
    Fork { body: usize, count: usize },
    Rewind { body: usize, shot: usize, keep: Keep },
    Promote { body: usize, keep: Keep },
    Remove { shot: usize },
    Terminate { body: usize },
    Collect,
    AskTheDead,
}

/// How long the state that a rewind or a promotion abandons is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    ForAWeek,
    Forever,
    Not,
}

/// The kind of an action, for the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// Create a sandbox from the image.
    Create,
    /// Create a sandbox from a snapshot.
    Restore,
    /// Change files and count.
    Work,
    /// Suspend a sandbox.
    Suspend,
    /// Resume it.
    Resume,
    /// Release its memory.
    Evict,
    /// Take a filesystem snapshot.
    CheckpointFilesystem,
    /// Take a memory snapshot.
    CheckpointMemory,
    /// Clone a sandbox.
    Clone,
    /// Fork a sandbox.
    Fork,
    /// Rewind to a filesystem snapshot.
    RewindFilesystem,
    /// Rewind to a memory snapshot.
    RewindMemory,
    /// Promote a child to its parent's place.
    Promote,
    /// Delete a snapshot.
    Remove,
    /// Delete a snapshot that is in use, which is refused.
    RemoveHeld,
    /// End a sandbox.
    Terminate,
    /// Collect garbage.
    Collect,
    /// Ask for something that is gone, which is refused.
    AskTheDead,
    /// Compare everything a last time, and clear away.
    End,
}

impl Kind {
    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Restore => "create from snapshot",
            Self::Work => "change files and memory",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Evict => "evict",
            Self::CheckpointFilesystem => "checkpoint, filesystem",
            Self::CheckpointMemory => "checkpoint, memory",
            Self::Clone => "clone",
            Self::Fork => "fork",
            Self::RewindFilesystem => "rewind, filesystem",
            Self::RewindMemory => "rewind, memory",
            Self::Promote => "promote",
            Self::Remove => "delete snapshot",
            Self::RemoveHeld => "delete snapshot in use",
            Self::Terminate => "terminate",
            Self::Collect => "collect",
            Self::AskTheDead => "ask what is over",
            Self::End => "end",
        }
    }
}

impl Walk<'_> {
    /// Chooses the next action among those that are possible now.
    pub(super) fn choose(&mut self) -> Action {
        if self.bodies.is_empty() {
            return Action::Create { named: true };
        }
        loop {
            if let Some(action) = self.try_choose() {
                return action;
            }
        }
    }

    fn try_choose(&mut self) -> Option<Action> {
        let few = self.bodies.len() < SANDBOXES;
        let room = self.shots.len() < SNAPSHOTS;
        let named = self.random.u32(0..100) < 80;
        let body = self.random.usize(0..self.bodies.len());
        let shot = (!self.shots.is_empty()).then(|| self.random.usize(0..self.shots.len()));
        let keep = [Keep::ForAWeek, Keep::Forever, Keep::Not][self.random.usize(0..3)];
        let kept = room || keep == Keep::Not;
        let chosen = &self.bodies[body];
        // Actions with a precondition would be too rare otherwise.
        if chosen.stage == Stage::Parked && self.random.u32(0..100) < 25 {
            return Some(Action::Evict { body });
        }
        let held: Vec<usize> = (0..self.shots.len()).filter(|shot| !self.holders(*shot).is_empty()).collect();
        if !held.is_empty() && self.random.u32(0..100) < 3 {
            return Some(Action::Remove { shot: held[self.random.usize(0..held.len())] });
        }
        match self.random.u32(0..100) {
            0..4 if few => Some(Action::Create { named }),
            4..13 if few => shot.map(|shot| Action::Restore { shot, named }),
            13..31 if chosen.stage == Stage::Running => Some(Action::Work { body }),
            31..38 if chosen.stage == Stage::Running => Some(Action::Suspend { body }),
            38..46 if chosen.stage != Stage::Running => Some(Action::Resume { body }),
            50..58 if room => Some(Action::Checkpoint { body, kind: "filesystem" }),
            58..65 if room => Some(Action::Checkpoint { body, kind: "memory" }),
            65..68 if few && room => Some(Action::Clone { body, named }),
            68..73 if few => {
                let count = self.random.usize(1..=2).min(SANDBOXES - self.bodies.len());
                Some(Action::Fork { body, count })
            }
            73..86 if kept => shot.map(|shot| Action::Rewind { body, shot, keep }),
            86..91 if kept && self.parent(body).is_some() => Some(Action::Promote { body, keep }),
            91..96 => shot.map(|shot| Action::Remove { shot }),
            46..50 | 96..98 => Some(Action::Terminate { body }),
            98 => Some(Action::Collect),
            99 => (!self.over.is_empty()).then_some(Action::AskTheDead),
            _ => None,
        }
    }

    pub(super) fn kind(&self, action: Action) -> Kind {
        match action {
            Action::Create { .. } => Kind::Create,
            Action::Restore { .. } => Kind::Restore,
            Action::Work { .. } => Kind::Work,
            Action::Suspend { .. } => Kind::Suspend,
            Action::Resume { .. } => Kind::Resume,
            Action::Evict { .. } => Kind::Evict,
            Action::Checkpoint { kind: "memory", .. } => Kind::CheckpointMemory,
            Action::Checkpoint { .. } => Kind::CheckpointFilesystem,
            Action::Clone { .. } => Kind::Clone,
            Action::Fork { .. } => Kind::Fork,
            Action::Rewind { shot, .. } if self.shots[shot].counter.is_some() => Kind::RewindMemory,
            Action::Rewind { .. } => Kind::RewindFilesystem,
            Action::Promote { .. } => Kind::Promote,
            Action::Remove { shot } if self.holders(shot).is_empty() => Kind::Remove,
            Action::Remove { .. } => Kind::RemoveHeld,
            Action::Terminate { .. } => Kind::Terminate,
            Action::Collect => Kind::Collect,
            Action::AskTheDead => Kind::AskTheDead,
        }
    }

    /// Describes the action with the walk's own names.
    pub(super) fn describe(&self, action: Action) -> String {
        let s = |body: usize| format!("s{}", self.bodies[body].number);
        let name = self.kind(action).name();
        match action {
            Action::Create { named } => {
                format!("{name} s{} {}", self.number + 1, if named { "named" } else { "ephemeral" })
            }
            Action::Restore { shot, named } => {
                let how = if named { "named" } else { "ephemeral" };
                format!("create s{} from {} {how}", self.number + 1, self.shots[shot].name())
            }
            Action::Work { body }
            | Action::Suspend { body }
            | Action::Resume { body }
            | Action::Evict { body }
            | Action::Checkpoint { body, .. }
            | Action::Clone { body, .. }
            | Action::Terminate { body }
            | Action::Promote { body, .. } => format!("{name} {}", s(body)),
            Action::Fork { body, count } => format!("{name} {} into {count}", s(body)),
            Action::Rewind { body, shot, keep } => {
                format!("{name} {} to {}, keep {keep:?}", s(body), self.shots[shot].name())
            }
            Action::Remove { shot } => format!("{name} {}", self.shots[shot].name()),
            Action::Collect | Action::AskTheDead => name.to_owned(),
        }
    }
}
