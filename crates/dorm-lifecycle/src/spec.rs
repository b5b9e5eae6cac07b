//! The requested properties of a sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::annotations::Annotations;
use crate::checkpoints::Checkpoints;
use crate::egress::Egress;
use crate::ids::{Digest, Name, SavedStateId};
use crate::ports::{PortAccess, PortHost, PortRules, PortTerms};
use crate::resources::Resources;
use crate::saved::Keep;
use crate::spec_error::SpecError;
use crate::state::FirstProgram;
use crate::volume::{Attachment, check_attachments};

/// The calls that resume a suspended sandbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Wake {
    /// None: only a resume does.
    Never,
    /// Connections to its ports. The default.
    #[default]
    Traffic,
    /// Connections to its ports, and calls for its processes and files.
    Any,
}

impl Wake {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Never, Self::Traffic, Self::Any];

    /// Returns the word for it in records and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Traffic => "traffic",
            Self::Any => "any",
        }
    }
}

/// The action when a deadline of a running sandbox passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnTimeout {
    /// It is terminated. The default without a name.
    Terminate,
    /// It is suspended. The default with a name.
    Suspend,
    /// It is suspended, and only its files are kept.
    SuspendFiles,
}

impl OnTimeout {
    /// Returns what a suspend at the deadline keeps; `None` if it is terminated.
    pub const fn keeps(self) -> Option<Keep> {
        match self {
            Self::Terminate => None,
            Self::Suspend => Some(Keep::Memory),
            Self::SuspendFiles => Some(Keep::Files),
        }
    }
}

/// Time limits of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timeouts {
    /// From the start of a run to its deadline, regardless of activity; none by default. A resume
    /// renews it.
    pub total: Option<Duration>,
    /// From the last activity (exec, file call, open terminal, traffic) to the deadline; none by
    /// default.
    pub idle: Option<Duration>,
    /// In place of `total` for a run that a call has woken; the same as `total` by default.
    pub after_wake: Option<Duration>,
    /// The longest uninterrupted run, regardless of extensions and holds; none by default. A resume
    /// renews it.
    pub max_run: Option<Duration>,
}

/// The action if a sandbox cannot be suspended at its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnSuspendFailure {
    /// It keeps running, and suspending it is retried until that succeeds. The default.
    #[default]
    Keep,
    /// It is terminated after [`crate::SUSPEND_FAILURES_MAX`] failures in a row.
    Terminate,
}

/// The action if a sandbox cannot be restored from any of its images.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnUnrestorable {
    /// It stays suspended, and the request fails with the reason. The default.
    #[default]
    Fail,
    /// It boots afresh from its image, without its memory and files; the answer says so.
    Fresh,
}

/// The retention policy of the sleep images that a sandbox can be restored from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SleepRetention {
    /// The number of sleep images to keep: the newest, and older ones to fall back to. 1 to 16.
    /// Default 1.
    pub generations: u32,
    /// The action if none of them can be restored.
    pub on_unrestorable: OnUnrestorable,
}

impl Default for SleepRetention {
    fn default() -> Self {
        Self { generations: 1, on_unrestorable: OnUnrestorable::Fail }
    }
}

impl SleepRetention {
    /// Rejects a number of generations that is out of range.
    ///
    /// # Errors
    ///
    /// [`SpecError::Resource`].
    pub fn check(&self) -> Result<(), SpecError> {
        let asked = u64::from(self.generations);
        match (1..=16).contains(&asked) {
            true => Ok(()),
            false => Err(SpecError::Resource { what: "keep_generations", asked, least: 1, most: 16 }),
        }
    }
}

/// Environment variables. Their values may be secret, so `Debug` does not print them.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Variables(pub BTreeMap<String, String>);

impl Variables {
    /// Clears every value and keeps the names.
    pub fn blank(&mut self) {
        self.0.values_mut().for_each(|value| *value = String::new());
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The requested properties of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxSpec {
    /// The name; a sandbox without one is ephemeral.
    pub name: Option<Name>,
    /// The image of its root file system.
    pub image: Digest,
    /// The layer of files on top of the image, if it starts from a filesystem snapshot.
    pub layer: Option<SavedStateId>,
    /// Its resource limits.
    pub resources: Resources,
    /// Where it may connect to.
    pub egress: Egress,
    /// The program that its first run started, or that ran in the memory that it continued from. A
    /// sandbox that boots from its files starts it again.
    pub program: FirstProgram,
    /// Environment variables of every process in it.
    pub variables: Variables,
    /// Secrets. Every process gets them as environment variables; they take precedence over
    /// `variables` of the same name. Other sandboxes get them only if a request names them.
    pub secrets: Variables,
    /// The action when a deadline passes.
    pub on_timeout: OnTimeout,
    /// The action if it cannot be suspended at its deadline.
    pub on_suspend_failure: OnSuspendFailure,
    /// Whether it can be suspended. By default, whether it has a name.
    pub suspendable: bool,
    /// The calls that resume it while it is suspended.
    pub wake: Wake,
    /// Who may reach its ports.
    pub port_access: PortAccess,
    /// The `Host` header for programs behind its ports; `None` for the one that the client named.
    pub port_host: Option<PortHost>,
    /// The exceptions for single ports; none by default.
    pub port_rules: PortRules,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// The retention policy of the sleep images it can be restored from.
    pub retention: SleepRetention,
    /// The policy for automatic snapshots; none by default.
    pub checkpoints: Option<Checkpoints>,
    /// The volumes to mount in each of its runs; none by default.
    pub attachments: Vec<Attachment>,
    /// Labels: arbitrary text of the user, by key.
    pub labels: BTreeMap<String, String>,
    /// Notes of programs that use the sandbox on behalf of others, such as servers of other APIs:
    /// by the name of the program, then by key. Nothing is selected by them.
    pub annotations: Annotations,
}

impl SandboxSpec {
    /// Returns the default properties of a sandbox of `image`: those of a named sandbox with
    /// `name`, of an ephemeral one without.
    pub fn new(image: Digest, name: Option<Name>) -> Self {
        let named = name.is_some();
        Self {
            name,
            image,
            layer: None,
            resources: Resources::default(),
            egress: Egress::default(),
            program: FirstProgram::None,
            variables: Variables::default(),
            secrets: Variables::default(),
            on_timeout: if named { OnTimeout::Suspend } else { OnTimeout::Terminate },
            on_suspend_failure: OnSuspendFailure::default(),
            suspendable: named,
            wake: Wake::default(),
            port_access: PortAccess::default(),
            port_host: None,
            port_rules: PortRules::default(),
            timeouts: Timeouts::default(),
            retention: SleepRetention::default(),
            checkpoints: None,
            attachments: Vec::new(),
            labels: BTreeMap::new(),
            annotations: Annotations::default(),
        }
    }

    /// Returns how requests to a port are treated.
    pub fn port(&self, port: u16) -> PortTerms {
        let rule = self.port_rules.0.get(&port);
        let host = rule.and_then(|rule| rule.host.as_ref()).or(self.port_host.as_ref());
        PortTerms {
            access: rule.and_then(|rule| rule.access).unwrap_or(self.port_access),
            host: host.map(|host| host.at(port)),
        }
    }

    /// Rejects invalid properties.
    ///
    /// # Errors
    ///
    /// The first [`SpecError`] found.
    pub fn check(&self) -> Result<(), SpecError> {
        self.resources.check()?;
        if self.on_timeout == OnTimeout::Suspend && !self.suspendable {
            return Err(SpecError::SuspendWithoutName);
        }
        self.timeouts.check()?;
        self.annotations.check()?;
        self.retention.check()?;
        self.checkpoints.as_ref().map_or(Ok(()), Checkpoints::check)?;
        check_attachments(&self.attachments)?;
        self.port_rules.check()?;
        for (key, value) in self.variables.0.iter().chain(&self.secrets.0) {
            if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
                return Err(SpecError::Variable(key.clone()));
            }
        }
        Ok(self.egress.check()?)
    }
}

impl Timeouts {
    /// Rejects a limit of zero.
    ///
    /// # Errors
    ///
    /// [`SpecError::ZeroTimeout`] with the name of the limit.
    pub fn check(&self) -> Result<(), SpecError> {
        let limits = [
            ("timeout", self.total),
            ("idle_timeout", self.idle),
            ("timeout_after_wake", self.after_wake),
            ("max_run", self.max_run),
        ];
        for (what, limit) in limits {
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
    use crate::egress::EgressTargetError;

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
            asked.retention.generations = generations;
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
        assert_eq!(asked.check(), Err(SpecError::Egress(EgressTargetError("example".into()).into())));
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
