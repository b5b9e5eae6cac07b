//! The rows of builds.

use std::collections::BTreeMap;

use dorm_build::{Command, Copy, Step};
use dorm_lifecycle::{BuildId, Caller, Digest, ProjectId, Resources, SandboxId, SnapshotId, TemplateName};
use serde::{Deserialize, Serialize};

use super::caller::CallerRow;
use super::operation::FailureRow;
use super::sandbox::{EgressRow, ResourcesRow};
use crate::codec::word::{Length, Millis, Text, present};
use crate::{
    BuildFailure, BuildLogin, BuildPlan, BuildRecord, BuildResources, BuildState, BuildStep, BuildStepState,
    BuildTemplate, BuildWork, PlannedStep, Recipe, codec,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct BuildRow {
    v: u64,
    id: Text<BuildId>,
    project: Text<ProjectId>,
    plan: PlanRow,
    #[serde(deserialize_with = "present")]
    base: Option<Text<Digest>>,
    steps: Vec<StepRow>,
    #[serde(deserialize_with = "present")]
    work: Option<WorkRow>,
    state: StateRow,
    cancel: bool,
    #[serde(deserialize_with = "present")]
    caller: Option<CallerRow>,
    #[serde(deserialize_with = "present")]
    image: Option<Text<Digest>>,
    is_tried: bool,
    #[serde(deserialize_with = "present")]
    snapshot: Option<Text<SnapshotId>>,
    created: Millis,
    #[serde(deserialize_with = "present")]
    began: Option<Millis>,
    #[serde(deserialize_with = "present")]
    ended: Option<Millis>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateRow {
    Reserved,
    Queued,
    Running,
    Finishing,
    Succeeded,
    Failed(BuildFailureRow),
    Cancelled,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildFailureRow {
    #[serde(deserialize_with = "present")]
    step: Option<u64>,
    #[serde(deserialize_with = "present")]
    exit_code: Option<i32>,
    failure: FailureRow,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanRow {
    recipe: RecipeRow,
    #[serde(deserialize_with = "present")]
    context: Option<Text<Digest>>,
    #[serde(deserialize_with = "present")]
    tag: Option<String>,
    #[serde(deserialize_with = "present")]
    start_command: Option<String>,
    #[serde(deserialize_with = "present")]
    ready_command: Option<String>,
    is_cached: bool,
    step_limit: Length,
    #[serde(deserialize_with = "present")]
    cpu_millis: Option<u32>,
    #[serde(deserialize_with = "present")]
    memory_bytes: Option<u64>,
    #[serde(deserialize_with = "present")]
    disk_bytes: Option<u64>,
    egress: EgressRow,
    #[serde(deserialize_with = "present")]
    template: Option<BuildTemplateRow>,
    #[serde(deserialize_with = "present")]
    login: Option<LoginRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginRow {
    user: String,
    password: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RecipeRow {
    Dockerfile { text: String, arguments: BTreeMap<String, String> },
    Steps { from: String, steps: Vec<PlannedRow> },
    Awaited,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedRow {
    step: InstructionRow,
    #[serde(deserialize_with = "present")]
    context: Option<Text<Digest>>,
    is_forced: bool,
    #[serde(deserialize_with = "present")]
    user: Option<String>,
    #[serde(deserialize_with = "present")]
    line: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum InstructionRow {
    RunLine(String),
    RunLogin(String),
    Run(Vec<String>),
    Copy {
        from: Vec<String>,
        to: String,
        #[serde(deserialize_with = "present")]
        owner: Option<String>,
        #[serde(deserialize_with = "present")]
        mode: Option<u32>,
    },
    Env {
        name: String,
        value: String,
    },
    Workdir(String),
    User(String),
    Entrypoint(Vec<String>),
    Cmd(Vec<String>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildTemplateRow {
    name: Text<TemplateName>,
    tags: Vec<String>,
    #[serde(deserialize_with = "present")]
    resources: Option<ResourcesRow>,
    variables: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepRow {
    title: String,
    #[serde(deserialize_with = "present")]
    line: Option<u64>,
    #[serde(deserialize_with = "present")]
    key: Option<String>,
    state: StepStateRow,
    #[serde(deserialize_with = "present")]
    snapshot: Option<Text<SnapshotId>>,
    #[serde(deserialize_with = "present")]
    began: Option<Millis>,
    #[serde(deserialize_with = "present")]
    ended: Option<Millis>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepStateRow {
    Waiting,
    Running,
    Cached,
    Done,
    Failed,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkRow {
    sandbox: Text<SandboxId>,
    snapshot: Text<SnapshotId>,
}

impl From<&BuildRecord> for BuildRow {
    fn from(record: &BuildRecord) -> Self {
        let BuildRecord {
            id,
            project,
            plan,
            base,
            steps,
            work,
            state,
            cancel,
            caller,
            image,
            is_tried,
            snapshot,
            created,
            began,
            ended,
        } = record;
        Self {
            v: codec::BUILD,
            id: Text(id.clone()),
            project: Text(project.clone()),
            plan: plan.into(),
            base: base.clone().map(Text),
            steps: steps.iter().map(StepRow::from).collect(),
            work: work.as_ref().map(WorkRow::from),
            state: state.into(),
            cancel: *cancel,
            caller: caller.as_ref().map(CallerRow::from),
            image: image.clone().map(Text),
            is_tried: *is_tried,
            snapshot: snapshot.clone().map(Text),
            created: Millis(*created),
            began: began.map(Millis),
            ended: ended.map(Millis),
        }
    }
}

impl From<BuildRow> for BuildRecord {
    fn from(row: BuildRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            plan: row.plan.into(),
            base: row.base.map(|base| base.0),
            steps: row.steps.into_iter().map(BuildStep::from).collect(),
            work: row.work.map(BuildWork::from),
            state: row.state.into(),
            cancel: row.cancel,
            caller: row.caller.map(Caller::from),
            image: row.image.map(|image| image.0),
            is_tried: row.is_tried,
            snapshot: row.snapshot.map(|snapshot| snapshot.0),
            created: row.created.0,
            began: row.began.map(|at| at.0),
            ended: row.ended.map(|at| at.0),
        }
    }
}

impl From<&BuildState> for StateRow {
    fn from(state: &BuildState) -> Self {
        match state {
            BuildState::Reserved => Self::Reserved,
            BuildState::Queued => Self::Queued,
            BuildState::Running => Self::Running,
            BuildState::Finishing => Self::Finishing,
            BuildState::Succeeded => Self::Succeeded,
            BuildState::Failed(BuildFailure { step, exit_code, failure }) => {
                Self::Failed(BuildFailureRow { step: *step, exit_code: *exit_code, failure: failure.into() })
            }
            BuildState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<StateRow> for BuildState {
    fn from(row: StateRow) -> Self {
        match row {
            StateRow::Reserved => Self::Reserved,
            StateRow::Queued => Self::Queued,
            StateRow::Running => Self::Running,
            StateRow::Finishing => Self::Finishing,
            StateRow::Succeeded => Self::Succeeded,
            StateRow::Failed(BuildFailureRow { step, exit_code, failure }) => {
                Self::Failed(BuildFailure { step, exit_code, failure: failure.into() })
            }
            StateRow::Cancelled => Self::Cancelled,
        }
    }
}

impl From<&BuildPlan> for PlanRow {
    fn from(plan: &BuildPlan) -> Self {
        let BuildPlan {
            recipe,
            context,
            tag,
            start_command,
            ready_command,
            is_cached,
            step_limit,
            resources: BuildResources { cpu_millis, memory_bytes, disk_bytes },
            egress,
            template,
            login,
        } = plan;
        let login = login.clone().map(|BuildLogin { user, password }| LoginRow { user, password });
        Self {
            recipe: recipe.into(),
            context: context.clone().map(Text),
            tag: tag.clone(),
            start_command: start_command.clone(),
            ready_command: ready_command.clone(),
            is_cached: *is_cached,
            step_limit: Length(*step_limit),
            cpu_millis: *cpu_millis,
            memory_bytes: *memory_bytes,
            disk_bytes: *disk_bytes,
            egress: egress.into(),
            template: template.as_ref().map(BuildTemplateRow::from),
            login,
        }
    }
}

impl From<PlanRow> for BuildPlan {
    fn from(row: PlanRow) -> Self {
        Self {
            recipe: row.recipe.into(),
            context: row.context.map(|context| context.0),
            tag: row.tag,
            start_command: row.start_command,
            ready_command: row.ready_command,
            is_cached: row.is_cached,
            step_limit: row.step_limit.0,
            resources: BuildResources {
                cpu_millis: row.cpu_millis,
                memory_bytes: row.memory_bytes,
                disk_bytes: row.disk_bytes,
            },
            egress: row.egress.into(),
            template: row.template.map(BuildTemplate::from),
            login: row.login.map(|LoginRow { user, password }| BuildLogin { user, password }),
        }
    }
}

impl From<&Recipe> for RecipeRow {
    fn from(recipe: &Recipe) -> Self {
        match recipe {
            Recipe::Dockerfile { text, arguments } => {
                Self::Dockerfile { text: text.clone(), arguments: arguments.clone() }
            }
            Recipe::Steps { from, steps } => {
                Self::Steps { from: from.clone(), steps: steps.iter().map(PlannedRow::from).collect() }
            }
            Recipe::Awaited => Self::Awaited,
        }
    }
}

impl From<RecipeRow> for Recipe {
    fn from(row: RecipeRow) -> Self {
        match row {
            RecipeRow::Dockerfile { text, arguments } => Self::Dockerfile { text, arguments },
            RecipeRow::Steps { from, steps } => {
                Self::Steps { from, steps: steps.into_iter().map(PlannedStep::from).collect() }
            }
            RecipeRow::Awaited => Self::Awaited,
        }
    }
}

impl From<&PlannedStep> for PlannedRow {
    fn from(planned: &PlannedStep) -> Self {
        let PlannedStep { step, context, is_forced, user, line } = planned;
        let step = match step {
            Step::Run(Command::Shell(line)) => InstructionRow::RunLine(line.clone()),
            Step::Run(Command::Login(line)) => InstructionRow::RunLogin(line.clone()),
            Step::Run(Command::Argv(argv)) => InstructionRow::Run(argv.clone()),
            Step::Copy(copy) => {
                let Copy { from, to, owner, mode } = copy.clone();
                InstructionRow::Copy { from, to, owner, mode }
            }
            Step::Env(name, value) => InstructionRow::Env { name: name.clone(), value: value.clone() },
            Step::Workdir(path) => InstructionRow::Workdir(path.clone()),
            Step::User(user) => InstructionRow::User(user.clone()),
            Step::Entrypoint(argv) => InstructionRow::Entrypoint(argv.clone()),
            Step::Cmd(argv) => InstructionRow::Cmd(argv.clone()),
        };
        Self { step, context: context.clone().map(Text), is_forced: *is_forced, user: user.clone(), line: *line }
    }
}

impl From<PlannedRow> for PlannedStep {
    fn from(row: PlannedRow) -> Self {
        let step = match row.step {
            InstructionRow::RunLine(line) => Step::Run(Command::Shell(line)),
            InstructionRow::RunLogin(line) => Step::Run(Command::Login(line)),
            InstructionRow::Run(argv) => Step::Run(Command::Argv(argv)),
            InstructionRow::Copy { from, to, owner, mode } => Step::Copy(Copy { from, to, owner, mode }),
            InstructionRow::Env { name, value } => Step::Env(name, value),
            InstructionRow::Workdir(path) => Step::Workdir(path),
            InstructionRow::User(user) => Step::User(user),
            InstructionRow::Entrypoint(argv) => Step::Entrypoint(argv),
            InstructionRow::Cmd(argv) => Step::Cmd(argv),
        };
        let PlannedRow { context, is_forced, user, line, .. } = row;
        Self { step, context: context.map(|context| context.0), is_forced, user, line }
    }
}

impl From<&BuildTemplate> for BuildTemplateRow {
    fn from(template: &BuildTemplate) -> Self {
        let BuildTemplate { name, tags, resources, variables } = template;
        Self {
            name: Text(name.clone()),
            tags: tags.clone(),
            resources: resources.as_ref().map(ResourcesRow::from),
            variables: variables.clone(),
        }
    }
}

impl From<BuildTemplateRow> for BuildTemplate {
    fn from(row: BuildTemplateRow) -> Self {
        let BuildTemplateRow { name, tags, resources, variables } = row;
        Self { name: name.0, tags, resources: resources.map(Resources::from), variables }
    }
}

impl From<&BuildStep> for StepRow {
    fn from(step: &BuildStep) -> Self {
        let BuildStep { title, line, key, state, snapshot, began, ended } = step;
        Self {
            title: title.clone(),
            line: *line,
            key: key.clone(),
            state: match state {
                BuildStepState::Waiting => StepStateRow::Waiting,
                BuildStepState::Running => StepStateRow::Running,
                BuildStepState::Cached => StepStateRow::Cached,
                BuildStepState::Done => StepStateRow::Done,
                BuildStepState::Failed => StepStateRow::Failed,
            },
            snapshot: snapshot.clone().map(Text),
            began: began.map(Millis),
            ended: ended.map(Millis),
        }
    }
}

impl From<StepRow> for BuildStep {
    fn from(row: StepRow) -> Self {
        Self {
            title: row.title,
            line: row.line,
            key: row.key,
            state: match row.state {
                StepStateRow::Waiting => BuildStepState::Waiting,
                StepStateRow::Running => BuildStepState::Running,
                StepStateRow::Cached => BuildStepState::Cached,
                StepStateRow::Done => BuildStepState::Done,
                StepStateRow::Failed => BuildStepState::Failed,
            },
            snapshot: row.snapshot.map(|snapshot| snapshot.0),
            began: row.began.map(|at| at.0),
            ended: row.ended.map(|at| at.0),
        }
    }
}

impl From<&BuildWork> for WorkRow {
    fn from(work: &BuildWork) -> Self {
        let BuildWork { sandbox, snapshot } = work;
        Self { sandbox: Text(sandbox.clone()), snapshot: Text(snapshot.clone()) }
    }
}

impl From<WorkRow> for BuildWork {
    fn from(row: WorkRow) -> Self {
        Self { sandbox: row.sandbox.0, snapshot: row.snapshot.0 }
    }
}
