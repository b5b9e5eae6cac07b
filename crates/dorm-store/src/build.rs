//! Builds of images and templates.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_build::Step;
use dorm_lifecycle::{
    BuildId, Caller, Digest, Egress, ProjectId, Resources, SandboxId, SnapshotId, TemplateName, Timestamp,
};

use crate::FailureRecord;

/// A build, waiting, in progress or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildRecord {
    /// Its id.
    pub id: BuildId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// The request.
    pub plan: BuildPlan,
    /// Its base image, once that is known.
    pub base: Option<Digest>,
    /// Its steps in order; empty until it begins.
    pub steps: Vec<BuildStep>,
    /// The objects that the step in progress makes. A daemon that starts ends or keeps it.
    pub work: Option<BuildWork>,
    /// Its state.
    pub state: BuildState,
    /// Whether its cancellation was requested.
    pub cancel: bool,
    /// The caller that requested it.
    pub caller: Option<Caller>,
    /// The image it has made.
    pub image: Option<Digest>,
    /// Whether a sandbox of that image was suspended and resumed.
    pub is_tried: bool,
    /// The memory snapshot of the program that its template starts with.
    pub snapshot: Option<SnapshotId>,
    /// When it was requested.
    pub created: Timestamp,
    /// When it began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// The state of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildState {
    /// It has a name and waits for its steps. If they are not given in time, it fails.
    Reserved,
    /// It waits for its turn.
    Queued,
    /// It carries out its steps.
    Running,
    /// Its result is being named; it can no longer be cancelled.
    Finishing,
    /// It has made what was requested.
    Succeeded,
    /// It has failed.
    Failed(BuildFailure),
    /// It was cancelled.
    Cancelled,
}

impl BuildState {
    /// Whether it has ended.
    pub const fn has_ended(&self) -> bool {
        match self {
            Self::Reserved | Self::Queued | Self::Running | Self::Finishing => false,
            Self::Succeeded | Self::Failed(_) | Self::Cancelled => true,
        }
    }
}

/// Why a build has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildFailure {
    /// The position of the step that failed, starting at 0; none if it was not a step.
    pub step: Option<u64>,
    /// The exit code of its command, if that exited.
    pub exit_code: Option<i32>,
    /// The reason.
    pub failure: FailureRecord,
}

/// The request for a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildPlan {
    /// The steps.
    pub recipe: Recipe,
    /// The context that steps copy files from.
    pub context: Option<Digest>,
    /// The tag of the image.
    pub tag: Option<String>,
    /// A line for `/bin/sh` that becomes the entrypoint of the image.
    pub start_command: Option<String>,
    /// A line for `/bin/sh` that exits with 0 as soon as a started image is ready.
    pub ready_command: Option<String>,
    /// Whether results of earlier builds are used.
    pub is_cached: bool,
    /// The time limit of each step.
    pub step_limit: Duration,
    /// The resource limits of the sandbox of a step.
    pub resources: BuildResources,
    /// Where a step may connect to.
    pub egress: Egress,
    /// The template that the result becomes.
    pub template: Option<BuildTemplate>,
    /// The login for the registry of the base image, until the build ends.
    pub login: Option<BuildLogin>,
}

/// A login for the registry of a base image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildLogin {
    /// The name of the user.
    pub user: String,
    /// The password, in the form in which secrets are recorded.
    pub password: String,
}

/// The source of the steps of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// The text of a Dockerfile.
    Dockerfile {
        /// The text.
        text: String,
        /// The values of its arguments.
        arguments: BTreeMap<String, String>,
    },
    /// Steps.
    Steps {
        /// The base image.
        from: String,
        /// The steps, in order.
        steps: Vec<PlannedStep>,
    },
    /// It was not given yet: the build is reserved.
    Awaited,
}

/// A step that was given as such.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedStep {
    /// The step.
    pub step: Step,
    /// The context that it copies from, if it has its own.
    pub context: Option<Digest>,
    /// Whether this step and those after it run although their results are known.
    pub is_forced: bool,
    /// The user of its program, if that is another than the one of the steps around it.
    pub user: Option<String>,
    /// Its line in the text that it was made from, starting at 1.
    pub line: Option<u64>,
}

impl From<Step> for PlannedStep {
    fn from(step: Step) -> Self {
        Self { step, context: None, is_forced: false, user: None, line: None }
    }
}

/// Resource limits of the sandbox of a step; the defaults apply to those that are not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BuildResources {
    /// CPU time per second of wall time, in thousandths of one CPU.
    pub cpu_millis: Option<u32>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Disk; at least that of the step before.
    pub disk_bytes: Option<u64>,
}

impl BuildResources {
    /// Returns the limits of the sandbox of a step.
    pub fn or_default(self) -> Resources {
        let default = Resources::default();
        Resources {
            cpu_millis: self.cpu_millis.unwrap_or(default.cpu_millis),
            memory_bytes: self.memory_bytes.unwrap_or(default.memory_bytes),
            disk_bytes: self.disk_bytes.unwrap_or(default.disk_bytes),
            ..default
        }
    }
}

/// The template that the result of a build becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildTemplate {
    /// Its name.
    pub name: TemplateName,
    /// The tags that point to the result from its end on.
    pub tags: Vec<String>,
    /// The resource limits of its sandboxes.
    pub resources: Option<Resources>,
    /// Environment variables of every process in them.
    pub variables: BTreeMap<String, String>,
}

/// A step of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildStep {
    /// The step as one line.
    pub title: String,
    /// Its line in the Dockerfile, starting at 1.
    pub line: Option<u64>,
    /// The key under which its result is kept; none if it changes no file.
    pub key: Option<String>,
    /// Its state.
    pub state: BuildStepState,
    /// The snapshot with its result.
    pub snapshot: Option<SnapshotId>,
    /// When it began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildStepState {
    /// It has not begun.
    Waiting,
    /// It is in progress.
    Running,
    /// Its result was kept from an earlier build.
    Cached,
    /// It is done.
    Done,
    /// It has failed.
    Failed,
}

/// The objects that the step in progress makes, recorded before it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildWork {
    /// The sandbox in which it runs.
    pub sandbox: SandboxId,
    /// The snapshot of its result.
    pub snapshot: SnapshotId,
}
