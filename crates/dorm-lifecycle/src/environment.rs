//! Environments: a sandbox that a caller asks for by a key, whatever state it is in.
//!
//! A [`Workspace`] says what the sandbox has: its image, its code and what was set up. A [`Policy`]
//! says how it is found again and what becomes of it. [`decide`] chooses between what exists:
//!
//! ```text
//! live ─► resume ─► own snapshot ─► snapshot of the same workspace ─► create
//! ```

mod decide;
mod workspace;

use std::fmt;
use std::time::Duration;

use crate::{EnvironmentId, SnapshotKind};

pub use decide::{Choice, Considered, Decision, Facts, SandboxFact, SnapshotFact, SnapshotOf, Verdict, Way, decide};
pub use workspace::{Base, Code, SetupStep, Workspace, WorkspaceError};

/// The longest text of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// The key of an environment, unique in its project.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// A text that the caller has chosen.
    Own(String),
    /// A thread of an agent.
    Thread(Thread),
    /// None: the environment is for one request.
    Once(EnvironmentId),
}

/// A thread of an agent, with the definition that it asks for and the tenant it belongs to. Two
/// threads are the same if all fields are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// The thread.
    pub thread: String,
    /// The name of the definition.
    pub definition: String,
    /// The user.
    pub user: Option<String>,
    /// The organization.
    pub organization: Option<String>,
}

/// Why a key is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// A part of it is empty.
    #[error("the {0} of an environment is empty")]
    Empty(&'static str),
    /// A part of it is too long.
    #[error("the {what} of an environment has {bytes} bytes: the maximum is {KEY_BYTES_MAX}")]
    Long {
        /// The part.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A part of it has characters that cannot be shown.
    #[error("the {0} of an environment has control characters")]
    Control(&'static str),
}

impl Key {
    /// Returns the parts of the key, each with its name.
    pub fn parts(&self) -> Vec<(&'static str, Option<&str>)> {
        match self {
            Self::Own(text) => vec![("key", Some(text))],
            Self::Thread(Thread { thread, definition, user, organization }) => vec![
                ("thread", Some(thread)),
                ("definition", Some(definition)),
                ("user", user.as_deref()),
                ("organization", organization.as_deref()),
            ],
            Self::Once(id) => vec![("once", Some(id.as_str()))],
        }
    }

    /// Rejects an invalid key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] for a part that is empty, too long or has control characters.
    pub fn check(&self) -> Result<(), KeyError> {
        for (what, text) in self.parts() {
            let Some(text) = text else { continue };
            match text {
                "" => return Err(KeyError::Empty(what)),
                text if text.len() > KEY_BYTES_MAX => return Err(KeyError::Long { what, bytes: text.len() }),
                text if text.chars().any(char::is_control) => return Err(KeyError::Control(what)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(text) => f.write_str(text),
            Self::Thread(Thread { thread, definition, .. }) => write!(f, "{definition}/{thread}"),
            Self::Once(id) => write!(f, "once/{id}"),
        }
    }
}

/// How an environment is found again, and what becomes of its sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// The snapshots that are taken without a request.
    pub snapshot: SnapshotWhen,
    /// The kind of these snapshots.
    pub snapshot_kind: SnapshotKind,
    /// The greatest age of a snapshot that is restored; none for any age.
    pub snapshot_max_age: Option<Duration>,
    /// The greatest age of a sandbox that is used again; none for any age. An older one is retired.
    pub sandbox_max_age: Option<Duration>,
    /// How long the sandbox stays running after its last use, before it is suspended.
    pub keep_alive: Option<Duration>,
    /// Whether the sandbox is terminated when its last lease ends.
    pub destroy_on_complete: bool,
    /// Action if the workspace is not the one that was recorded.
    pub on_drift: OnDrift,
    /// Action if something exists but cannot be used.
    pub on_broken: OnBroken,
    /// Whether the sandbox of a setup that has failed is kept for inspection.
    pub keep_failed: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            snapshot: SnapshotWhen::AfterSetup,
            snapshot_kind: SnapshotKind::Memory,
            snapshot_max_age: None,
            sandbox_max_age: None,
            keep_alive: None,
            destroy_on_complete: false,
            on_drift: OnDrift::Rebuild,
            on_broken: OnBroken::Refuse,
            keep_failed: false,
        }
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $case:ident $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$of])* $case,)+
        }

        impl $name {
            /// Every case.
            pub const ALL: &'static [Self] = &[$(Self::$case,)+];

            /// Its word in records and responses.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $word,)+
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// When snapshots are taken without a request.
    SnapshotWhen {
        /// After the setup. Other environments with the same workspace start from it.
        AfterSetup "after_setup",
        /// At the end of a run, when its lease is released.
        AfterRun "after_run",
        /// Never.
        Never "none",
    }
}

words! {
    /// Action if the workspace is not the one that the environment has.
    OnDrift {
        /// The sandbox is retired, and another one is made.
        Rebuild "rebuild",
        /// The sandbox is used as it is, and the response says how it differs.
        Keep "keep",
        /// The request is refused.
        Refuse "refuse",
    }
}

words! {
    /// Action if a sandbox or a snapshot exists but cannot be used.
    OnBroken {
        /// The request fails, and says what is broken.
        Refuse "refuse",
        /// The next way is taken, and the response says what is broken.
        Next "next",
    }
}

words! {
    /// Rule for work in progress when no caller waits for it any more.
    OnLeave {
        /// It continues.
        Continue "continue",
        /// It is cancelled.
        Cancel "cancel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(thread: &str) -> Key {
        let (thread, definition) = (thread.to_owned(), "agent".to_owned());
        Key::Thread(Thread { thread, definition, user: None, organization: None })
    }

    #[test]
    fn keys_have_parts_that_can_be_shown() {
        assert_eq!(thread("té中").check(), Ok(()));
        assert_eq!(Key::Own("x".repeat(KEY_BYTES_MAX)).check(), Ok(()));
        assert_eq!(thread("").check(), Err(KeyError::Empty("thread")));
        assert_eq!(Key::Own("a\nb".to_owned()).check(), Err(KeyError::Control("key")));
        let long = Key::Own("x".repeat(10_000)).check();
        assert_eq!(long, Err(KeyError::Long { what: "key", bytes: 10_000 }));
    }
}
