//! What is asked for when a sandbox is created.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::checkpoints::Checkpoints;
use crate::egress::{Egress, EgressRuleError};
use crate::ids::{CaptureId, Digest, Name};
use crate::volume::{Attachment, AttachmentError, check_attachments};

/// CPU, memory, disk and process limits of one sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Resources {
    /// CPU time per second of wall time, in thousandths of one CPU. Default 1000.
    pub cpu_millis: u32,
    /// Guest memory in bytes. Default 512 MiB.
    pub memory_bytes: u64,
    /// What the sandbox may write to its root filesystem, in bytes. Default 4 GiB.
    pub disk_bytes: u64,
    /// Processes and threads inside. Default 512.
    pub processes: u32,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu_millis: 1000, memory_bytes: 512 << 20, disk_bytes: 4 << 30, processes: 512 }
    }
}

impl Resources {
    /// Refuses what no host could give or no sandbox could live in: CPU 50 to 256,000 thousandths, memory 64 MiB to
    /// 4 TiB, disk 64 MiB to 64 TiB, processes 16 to 65,536.
    ///
    /// # Errors
    /// [`SpecError::Resource`] names the first one out of its range.
    pub fn check(&self) -> Result<(), SpecError> {
        let rows = [
            ("cpu_millis", u64::from(self.cpu_millis), 50, 256_000),
            ("memory_bytes", self.memory_bytes, 64 << 20, 4 << 40),
            ("disk_bytes", self.disk_bytes, 64 << 20, 64 << 40),
            ("processes", u64::from(self.processes), 16, 65_536),
        ];
        for (what, asked, least, most) in rows {
            if !(least..=most).contains(&asked) {
                return Err(SpecError::Resource { what, asked, least, most });
            }
        }
        Ok(())
    }
}

/// Why a sandbox cannot be asked for like this.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// A resource is out of its range.
    #[error("{what} is {asked}: it must be between {least} and {most}")]
    Resource {
        /// The field.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// A sandbox without a name is to be suspended when its time is over.
    #[error("an unnamed sandbox cannot be suspended on timeout: give it a name, or choose on_timeout terminate")]
    SuspendWithoutName,
    /// A timeout of zero.
    #[error("{0} is zero: leave it out for no limit")]
    ZeroTimeout(&'static str),
    /// The name of an environment variable is empty or holds `=` or NUL.
    #[error(
        "'{0}' is not a name for an environment variable: it must not be empty nor hold '=' or NUL, its value no NUL"
    )]
    Variable(String),
    /// An entry of the egress list is neither a network nor a host name.
    #[error(transparent)]
    Egress(#[from] EgressRuleError),
    /// Attached volumes cannot be together.
    #[error(transparent)]
    Attachments(#[from] AttachmentError),
}

/// Who may reach the ports of a sandbox through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PortAccess {
    /// Everyone who knows the sandbox's id. The default.
    #[default]
    Public,
    /// Those who show a key of the API, the sandbox's port token, or the cookie of a link to the port.
    Private,
}

/// What happens when a deadline of a running sandbox passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnTimeout {
    /// It ends. The default without a name.
    Terminate,
    /// It is suspended. The default with a name.
    Suspend,
}

/// How long a sandbox may run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timeouts {
    /// From the start of a run to its deadline, whatever happens inside; none by default. Resuming renews it.
    pub total: Option<Duration>,
    /// From the last activity (exec, file call, open terminal, traffic) to the deadline; none by default.
    pub idle: Option<Duration>,
    /// How long it may run without a break, whatever extends or holds it; none by default. Resuming renews it.
    pub max_run: Option<Duration>,
}

/// What becomes of a sandbox that cannot be suspended at its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnSuspendFailure {
    /// It goes on running, and is suspended as soon as that works. The default.
    #[default]
    Keep,
    /// It is terminated after [`crate::SUSPEND_FAILURES_MAX`] failures in a row.
    Terminate,
}

/// What a sandbox that cannot be brought back from any of its images becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnUnrestorable {
    /// It stays suspended, and whoever wanted it is told why. The default.
    #[default]
    Fail,
    /// It boots afresh from its root image, with nothing of its memory and files; its answer says so.
    Fresh,
}

/// What is kept so that a sandbox can be brought back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Keeping {
    /// How many sleep images are kept: the newest, and those before it to fall back to. 1 to 16. Default 1.
    pub generations: u32,
    /// What happens when none of them can be restored.
    pub on_unrestorable: OnUnrestorable,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { generations: 1, on_unrestorable: OnUnrestorable::Fail }
    }
}

impl Keeping {
    /// Refuses a number of generations out of its range.
    ///
    /// # Errors
    /// [`SpecError::Resource`].
    pub fn check(&self) -> Result<(), SpecError> {
        let asked = u64::from(self.generations);
        match (1..=16).contains(&asked) {
            true => Ok(()),
            false => Err(SpecError::Resource { what: "keep_generations", asked, least: 1, most: 16 }),
        }
    }
}

/// Environment variables. Their values may be secret, so they are not printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Variables(pub BTreeMap<String, String>);

impl Variables {
    /// Forgets every value, and keeps the names.
    pub fn blank(&mut self) {
        self.0.values_mut().for_each(|value| *value = String::new());
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxSpec {
    /// The name; a sandbox without one is ephemeral.
    pub name: Option<Name>,
    /// The image its root filesystem comes from.
    pub image: Digest,
    /// The layer of files that lies on the image, when it comes from a filesystem snapshot.
    pub layer: Option<CaptureId>,
    /// Its limits.
    pub resources: Resources,
    /// Where it may connect to.
    pub egress: Egress,
    /// Variables that every process in it gets.
    pub variables: Variables,
    /// Secrets, which every process gets as variables, before those of the same name. No other sandbox gets them unless
    /// they are named.
    pub secrets: Variables,
    /// What a passed deadline does.
    pub on_timeout: OnTimeout,
    /// What becomes of it when a passed deadline cannot suspend it.
    pub on_suspend_failure: OnSuspendFailure,
    /// Whether it may be suspended. By default: whether it has a name.
    pub suspendable: bool,
    /// Whether traffic wakes it while it is suspended. Default: yes.
    pub auto_resume: bool,
    /// Who may reach its ports.
    pub port_access: PortAccess,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// What is kept to bring it back.
    pub keeping: Keeping,
    /// The snapshots that are taken of it by themselves; none by default.
    pub checkpoints: Option<Checkpoints>,
    /// The volumes that each of its runs has mounted; none by default.
    pub attachments: Vec<Attachment>,
    /// Free text of the user, by key.
    pub labels: BTreeMap<String, String>,
}

impl SandboxSpec {
    /// A sandbox of `image` with every default for one with `name`, or an ephemeral one without.
    pub fn new(image: Digest, name: Option<Name>) -> Self {
        let named = name.is_some();
        Self {
            name,
            image,
            layer: None,
            resources: Resources::default(),
            egress: Egress::default(),
            variables: Variables::default(),
            secrets: Variables::default(),
            on_timeout: if named { OnTimeout::Suspend } else { OnTimeout::Terminate },
            on_suspend_failure: OnSuspendFailure::default(),
            suspendable: named,
            auto_resume: true,
            port_access: PortAccess::default(),
            timeouts: Timeouts::default(),
            keeping: Keeping::default(),
            checkpoints: None,
            attachments: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first [`SpecError`] found.
    pub fn check(&self) -> Result<(), SpecError> {
        self.resources.check()?;
        if self.on_timeout == OnTimeout::Suspend && !self.suspendable {
            return Err(SpecError::SuspendWithoutName);
        }
        self.timeouts.check()?;
        self.keeping.check()?;
        self.checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)?;
        check_attachments(&self.attachments)?;
        for (key, value) in self.variables.0.iter().chain(&self.secrets.0) {
            if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
                return Err(SpecError::Variable(key.clone()));
            }
        }
        Ok(self.egress.check()?)
    }
}

impl Timeouts {
    /// Refuses a limit of zero.
    ///
    /// # Errors
    /// [`SpecError::ZeroTimeout`] with the name of the limit.
    pub fn check(&self) -> Result<(), SpecError> {
        for (what, limit) in [("timeout", self.total), ("idle_timeout", self.idle), ("max_run", self.max_run)] {
            if limit == Some(Duration::ZERO) {
                return Err(SpecError::ZeroTimeout(what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: Option<&str>) -> SandboxSpec {
        let image = "0".repeat(64).parse().expect("digest");
        SandboxSpec::new(image, name.map(|name| name.parse().expect("name")))
    }

    #[test]
    fn a_name_makes_a_sandbox_suspendable_and_suspended_on_timeout() {
        assert_eq!((spec(Some("a")).suspendable, spec(Some("a")).on_timeout), (true, OnTimeout::Suspend));
        assert_eq!((spec(None).suspendable, spec(None).on_timeout), (false, OnTimeout::Terminate));
    }

    #[test]
    fn impossible_resources_are_refused_by_name() {
        let mut asked = spec(None);
        asked.resources.memory_bytes = 1;
        assert!(matches!(asked.check(), Err(SpecError::Resource { what: "memory_bytes", asked: 1, .. })));
    }

    #[test]
    fn as_many_generations_are_kept_as_make_sense() {
        for (generations, legal) in [(0, false), (1, true), (16, true), (17, false)] {
            let mut asked = spec(Some("a"));
            asked.keeping.generations = generations;
            assert_eq!(asked.check().is_ok(), legal, "{generations}");
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        let mut asked = spec(None);
        asked.on_timeout = OnTimeout::Suspend;
        assert_eq!(asked.check(), Err(SpecError::SuspendWithoutName));
        let mut asked = spec(None);
        asked.timeouts.idle = Some(Duration::ZERO);
        assert_eq!(asked.check(), Err(SpecError::ZeroTimeout("idle_timeout")));
        let mut asked = spec(None);
        asked.variables.0.insert("A=B".into(), String::new());
        assert_eq!(asked.check(), Err(SpecError::Variable("A=B".into())));
        let mut asked = spec(None);
        asked.egress = Egress::Allow(vec!["10.0.0.0/8".into(), "example".into()]);
        assert_eq!(asked.check(), Err(SpecError::Egress(EgressRuleError("example".into()))));
    }

    #[test]
    fn values_of_variables_are_not_printed() {
        let mut asked = spec(None);
        asked.variables.0.insert("TOKEN".into(), "hunter2".into());
        asked.secrets.0.insert("KEY".into(), "hunter2".into());
        let text = format!("{asked:?}");
        assert!(text.contains("TOKEN") && !text.contains("hunter2"));
    }
}
