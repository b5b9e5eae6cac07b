//! Builds of images and templates, and templates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::egress::Egress;
use crate::resources::{Resources, ResourcesRequest};
use crate::text::Time;

/// Requests a build: exactly one of `dockerfile` and `from` is set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateBuild {
    /// Text of the Dockerfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// Values for the `ARG`s of the Dockerfile.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Base image, for a build from `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Steps, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<BuildStepRequest>,
    /// Hash of the uploaded context that steps copy files from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Tag for the image. An image of the project that has this tag loses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Line for `/bin/sh` that becomes the entrypoint of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_command: Option<String>,
    /// Line for `/bin/sh` that exits with 0 once the started program is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_command: Option<String>,
    /// Run every step, even those whose results are known.
    pub force: bool,
    /// Time limit of each step, and of the wait until the program is ready. Default 1800.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout_secs: Option<f64>,
    /// Resource limits of the sandbox of each step. `processes` cannot be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Where steps may connect to. Default `public`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Template that the result becomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<BuildTemplate>,
}

/// A step of a build: exactly one of the fields that name an instruction is set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildStepRequest {
    /// Run a line with `/bin/sh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Run a line with a login shell: `bash`, or `sh` in an image without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_login: Option<String>,
    /// Run a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Copy files from the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<BuildCopy>,
    /// Set variables for later steps and in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Set the working directory of later steps and of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Set the user of later steps and of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Hash of the uploaded context that this step copies from. Default: that of the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Run this step and those after it, even if their results are known.
    pub force: bool,
}

/// Files to copy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildCopy {
    /// Paths in the context; a directory stands for its content, and `*` for any name.
    pub from: Vec<String>,
    /// Destination. With a trailing slash, or with several sources, it is a directory.
    pub to: String,
    /// Owner of what is created: `USER` or `USER:GROUP`, as names that the image lists or as
    /// numbers. Default root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Permission bits of files and directories in octal, such as `0755`. Default those in the
    /// context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// The template that the result of a build becomes. With a start or ready command, the program is
/// started, and sandboxes of the template have it running.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildTemplate {
    /// Name, unique in the project.
    pub name: String,
    /// Tags that stand for the result from the end of the build on. Default `latest`.
    pub tags: Vec<String>,
    /// Resource limits of its sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Environment variables of every process in them. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// State of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuildState {
    /// It waits for its steps, which a client of E2B gives later. It fails without them after an
    /// hour.
    Reserved,
    /// It waits for its turn.
    Queued,
    /// It is being carried out.
    Running,
    /// It has made what was requested.
    Succeeded,
    /// It has failed; `failure` says why.
    Failed,
    /// It was cancelled. Nothing of it is left but the results of finished steps.
    Cancelled,
}

/// A build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// ID.
    pub id: String,
    /// Project.
    pub project: String,
    /// State.
    pub state: BuildState,
    /// Whether its cancellation was requested.
    pub cancelling: bool,
    /// Tag for the image.
    pub tag: Option<String>,
    /// Name of the template that the result becomes.
    pub template: Option<String>,
    /// Tags of that template that stand for the result.
    pub template_tags: Vec<String>,
    /// Digest of the base image, once it is known.
    pub base: Option<String>,
    /// Steps, once the base image is known.
    pub steps: Vec<BuildStep>,
    /// Position of the step in progress, starting at 0.
    pub step: Option<u64>,
    /// Digest of the image.
    pub image: Option<String>,
    /// ID of the memory snapshot that sandboxes of the template start from.
    pub snapshot: Option<String>,
    /// Why it has failed.
    pub failure: Option<BuildFailure>,
    /// Caller that requested it.
    #[serde(default)]
    pub caller: Option<Caller>,
    /// When it was requested.
    pub created_at: Time,
    /// When it began.
    pub began_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// A step of a build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildStep {
    /// The step as one line.
    pub title: String,
    /// Line in the Dockerfile, starting at 1.
    pub line: Option<u64>,
    /// Key of its result; null if it changes no file.
    pub key: Option<String>,
    /// State.
    pub state: BuildStepState,
    /// ID of the snapshot with its result.
    pub snapshot: Option<String>,
    /// When it began.
    pub began_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// State of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
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

/// Why a build has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildFailure {
    /// Error code, as in a problem.
    pub code: String,
    /// The reason.
    pub reason: String,
    /// Position of the step that failed, starting at 0; null if it was not a step.
    pub step: Option<u64>,
    /// Exit code of its command, if that exited.
    pub exit_code: Option<i32>,
}

/// A page of builds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildList {
    /// The builds.
    pub builds: Vec<Build>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Origin of a line of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuildLogStream {
    /// The builder.
    Build,
    /// Standard output of a step.
    Stdout,
    /// Standard error of a step.
    Stderr,
}

/// A line of the log of a build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildLogLine {
    /// Its offset in the log, starting at 0.
    pub offset: u64,
    /// When it was written.
    pub at: Time,
    /// Position of the step, starting at 0; null if it concerns no step.
    pub step: Option<u64>,
    /// Its origin.
    pub stream: BuildLogStream,
    /// The text, without the end of the line. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Lines of the log of a build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildLog {
    /// The lines, in order.
    pub lines: Vec<BuildLogLine>,
    /// Offset of the next line: send it as `offset`.
    pub next_offset: u64,
    /// State of the build. Nothing is added to the log of one that has ended.
    pub state: BuildState,
}

/// An uploaded build context.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BuildContext {
    /// The hash that its uploader named it by.
    pub hash: String,
    /// How many files, directories and links it has.
    pub entries: u64,
    /// Length of all its files.
    pub bytes: u64,
}

/// Makes tags of a template stand for an image or a snapshot: exactly one of them is set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateTemplate {
    /// Name, unique in the project. The template is created if it is missing.
    pub name: String,
    /// Tags. Default `latest`. They are moved if they exist.
    pub tags: Vec<String>,
    /// Tag or digest of an image, or the name of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// ID of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Resource limits of its sandboxes. Default: those of the snapshot, or the general defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// Environment variables of every process in them. Their values are never returned.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Start the image's entrypoint and command in each, and wait for its readiness command.
    /// Default: as when a sandbox is created from the image or snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
}

/// Makes further tags stand for what a tag stands for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TagTemplate {
    /// The tag to start from. Default `latest`.
    pub from: String,
    /// The tags. They are moved if they exist.
    pub tags: Vec<String>,
}

/// A template.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// ID.
    pub id: String,
    /// Project.
    pub project: String,
    /// Name.
    pub name: String,
    /// The versions that tags stand for.
    pub tags: BTreeMap<String, TemplateVersion>,
    /// When it was created.
    pub created_at: Time,
}

/// The image or snapshot that a tag stands for, with the settings of sandboxes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateVersion {
    /// Digest of the image.
    pub image: Option<String>,
    /// ID of the snapshot.
    pub snapshot: Option<String>,
    /// Resource limits of its sandboxes; null for those of the snapshot, or the general defaults.
    pub resources: Option<Resources>,
    /// Names of its environment variables.
    pub env: Vec<String>,
    /// Whether the program of the image is started in each sandbox; null if that is as when a
    /// sandbox is created from the image or snapshot.
    pub start: Option<bool>,
    /// ID of the build that made it.
    pub build: Option<String>,
    /// When the tag began to stand for this.
    pub created_at: Time,
}

/// A page of templates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    /// The templates.
    pub templates: Vec<Template>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}
