//! The plan of a build: its steps, and the contexts that they copy from.

use std::collections::BTreeSet;

use dorm_build::{BuildError, Kept, Placed, Plan, Settings, Step, from_dockerfile};
use dorm_lifecycle::Digest;
use dorm_storage::ImageConfig;
use dorm_store::{BuildPlan, PlannedStep, Recipe};

use crate::error::{BuildProblem, ServiceError};

/// The largest number of steps.
const STEPS_MAX: usize = 1000;

/// Rejects a plan that cannot be carried out whatever its base image is.
pub(crate) fn check(plan: &BuildPlan) -> Result<(), ServiceError> {
    let parsed = steps(plan, &Kept::default()).map_err(|error| BuildProblem::Bad(error.to_string()))?;
    let mut settings = Settings::default();
    for placed in &parsed.steps {
        settings.apply(&placed.step).map_err(|error| BuildProblem::Bad(error.to_string()))?;
    }
    if parsed.steps.len() > STEPS_MAX {
        return Err(BuildProblem::Bad(format!("it has more than {STEPS_MAX} steps")).into());
    }
    let copies = parsed.steps.iter().enumerate().filter(|(_, placed)| matches!(placed.step, Step::Copy(_)));
    for (at, _) in copies {
        if context_of(plan, at).is_none() {
            return Err(BuildProblem::Bad("a step copies files, but there is no context".to_owned()).into());
        }
    }
    Ok(())
}

/// Returns the steps of a plan.
pub(crate) fn steps(plan: &BuildPlan, base: &Kept) -> Result<Plan, BuildError> {
    let mut steps = match &plan.recipe {
        Recipe::Dockerfile { text, arguments } => from_dockerfile(text, arguments, base)?,
        Recipe::Steps { from, steps } => Plan { from: from.clone(), steps: steps.iter().map(placed).collect() },
        Recipe::Awaited => return Err(BuildError::Step { what: "its steps are not known yet".to_owned() }),
    };
    if let Some(line) = &plan.start_command {
        let step = Step::Entrypoint(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]);
        steps.steps.push(Placed { line: None, step, arguments: Default::default(), user: None });
    }
    Ok(steps)
}

fn placed(planned: &PlannedStep) -> Placed {
    let PlannedStep { step, user, line, .. } = planned.clone();
    let line = line.and_then(|line| usize::try_from(line).ok());
    Placed { line, step, arguments: Default::default(), user }
}

/// Returns the context of a step.
pub(crate) fn context_of(plan: &BuildPlan, at: usize) -> Option<&Digest> {
    let own = match &plan.recipe {
        Recipe::Steps { steps, .. } => steps.get(at).and_then(|step| step.context.as_ref()),
        Recipe::Dockerfile { .. } | Recipe::Awaited => None,
    };
    own.or(plan.context.as_ref())
}

/// Returns the settings of an image.
pub(crate) fn kept(config: &ImageConfig) -> Kept {
    let words = |words: &Vec<String>| Some(words.clone()).filter(|words| !words.is_empty());
    let pair = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Kept {
        env: config.env.iter().filter_map(pair).collect(),
        workdir: config.directory.clone(),
        workdir_owner: None,
        user: config.user.clone(),
        entrypoint: words(&config.entrypoint),
        cmd: words(&config.command),
    }
}

/// Returns a step as one line.
pub(crate) fn title(step: &Step) -> String {
    let text = match step {
        Step::Run(dorm_build::Command::Shell(line) | dorm_build::Command::Login(line)) => format!("RUN {line}"),
        Step::Run(dorm_build::Command::Argv(argv)) => format!("RUN {argv:?}"),
        Step::Copy(copy) => {
            let owner = copy.owner.iter().map(|owner| format!("--chown={owner} "));
            let mode = copy.mode.iter().map(|mode| format!("--chmod={mode:04o} "));
            let options: String = owner.chain(mode).collect();
            format!("COPY {options}{} {}", copy.from.join(" "), copy.to)
        }
        Step::Env(name, value) => format!("ENV {name}={value}"),
        Step::Workdir(path) => format!("WORKDIR {path}"),
        Step::User(user) => format!("USER {user}"),
        Step::Entrypoint(argv) => format!("ENTRYPOINT {argv:?}"),
        Step::Cmd(argv) => format!("CMD {argv:?}"),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Returns the contexts that a plan copies from.
pub(crate) fn contexts_of(plan: &BuildPlan) -> BTreeSet<Digest> {
    let mut contexts: BTreeSet<_> = plan.context.iter().cloned().collect();
    if let Recipe::Steps { steps, .. } = &plan.recipe {
        contexts.extend(steps.iter().filter_map(|step| step.context.clone()));
    }
    contexts
}
