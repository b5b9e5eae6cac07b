//! The state and the log of a build.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use dorm_build::{Command, Step};
use dorm_lifecycle::BuildId;
use dorm_service::{BUILD_LOG_LINES_MAX, Code, Service};
use dorm_storage::{LogLine, LogStream};
use dorm_store::{BuildFailure, BuildRecord, BuildState, BuildStepState, Recipe};
use serde_json::json;

use super::super::Call;
use super::wire::{BuildInfo, LogEntry, Reason, time};
use super::{ids, name_and_tag, own_name, show};
use crate::error::Refusal;
use crate::text::{number, parameter};

/// The most entries of one answer.
const ENTRIES_MAX: usize = 100;
/// The level of every entry: what a program writes to its standard error may be no error.
const LEVEL: &str = "info";

/// Answers a request for the state of a build, with its log from an offset on.
pub(super) async fn status(id: &str, build: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let uri = request.uri();
    let offset = number::<u64>(uri, "logsOffset")?.unwrap_or(0);
    let limit = number::<usize>(uri, "limit")?.unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX);
    let build = own_build(&service, id, build).await?;
    let (page, build) = service.build_log(&build, offset, limit, Duration::ZERO).await?;
    let template_id = match &build.plan.template {
        Some(template) => service.id_of_template(&template.name).await?.to_string(),
        None => id.to_owned(),
    };
    let entries = page.lines.into_iter().map(|line| entry(&build, line));
    let log_entries: Vec<LogEntry> = if is_wanted(&parameter(uri, "level")?)? { entries.collect() } else { Vec::new() };
    let info = BuildInfo {
        template_id,
        build_id: ids::of_build(&build.id),
        status: show::status(&build.state),
        logs: Vec::new(),
        log_entries,
        reason: reason(&build),
    };
    Ok(Json(info).into_response())
}

/// Answers a request for entries of the log around a moment.
pub(super) async fn logs(id: &str, build: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let uri = request.uri();
    let limit = number::<usize>(uri, "limit")?.unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX);
    let cursor = number::<u64>(uri, "cursor")?;
    let is_backward = match parameter(uri, "direction")?.as_deref() {
        None | Some("" | "forward") => false,
        Some("backward") => true,
        Some(other) => return Err(Refusal::invalid(format!("direction is '{other}': it must be forward or backward"))),
    };
    let build = own_build(&service, id, build).await?;
    let mut found: std::collections::VecDeque<LogEntry> = std::collections::VecDeque::new();
    if is_wanted(&parameter(uri, "level")?)? {
        let mut offset = 0;
        loop {
            let (page, build) = service.build_log(&build, offset, BUILD_LOG_LINES_MAX, Duration::ZERO).await?;
            let is_last = page.lines.is_empty();
            offset = page.next;
            let fits = |line: &LogLine| match (cursor, is_backward) {
                (None, _) => true,
                (Some(at), false) => line.at_ms >= at,
                (Some(at), true) => line.at_ms <= at,
            };
            for line in page.lines.into_iter().filter(fits) {
                if is_backward && found.len() == limit {
                    found.pop_front();
                }
                if found.len() < limit {
                    found.push_back(entry(&build, line));
                }
            }
            if is_last || (!is_backward && found.len() == limit) {
                break;
            }
        }
    }
    let mut entries = Vec::from(found);
    if is_backward {
        entries.reverse();
    }
    Ok(Json(json!({ "logs": entries })).into_response())
}

/// Whether entries of a level are wanted that has those of all higher ones.
fn is_wanted(level: &Option<String>) -> Result<bool, Refusal> {
    match level.as_deref() {
        None | Some("" | "debug" | "info") => Ok(true),
        Some("warn" | "error") => Ok(false),
        Some(other) => Err(Refusal::invalid(format!("level is '{other}': it must be debug, info, warn or error"))),
    }
}

/// Returns the id of a build of a template of this project.
pub(super) async fn own_build(service: &Service, template: &str, uuid: &str) -> Result<BuildId, Refusal> {
    let missing = || Refusal::not_found(format!("build '{uuid}' of template '{template}' not found"));
    let id = ids::build(uuid).ok_or_else(missing)?;
    let build = match service.describe_build(&id).await {
        Ok(build) => build,
        Err(error) if error.code() == Code::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let name = build.plan.template.map(|template| template.name).ok_or_else(missing)?;
    let named = own_name(service, name_and_tag(template).0);
    match named == name.as_str() || service.id_of_template(&name).await?.as_str() == named {
        true => Ok(id),
        false => Err(missing()),
    }
}

fn entry(build: &BuildRecord, line: LogLine) -> LogEntry {
    let (at, step) = (line.at(), line.step.and_then(|at| step(build, at)));
    let is_title = line.stream == LogStream::Build && line.text.starts_with('[');
    let message = match step.as_deref() {
        // The client has not given these steps.
        Some(BASE) if is_title => "preparing the base image".to_owned(),
        Some(_) | None => line.text,
    };
    LogEntry { timestamp: time(at), message, level: LEVEL, step }
}

/// The client's own number of a step; that of the base for one that the client has not given.
fn step(build: &BuildRecord, at: u64) -> Option<String> {
    let Recipe::Steps { steps, .. } = &build.plan.recipe else { return None };
    let step = steps.get(usize::try_from(at).ok()?)?;
    Some(step.line.map_or_else(|| BASE.to_owned(), |line| line.to_string()))
}

/// The words of clients for the work before the steps, and for the work after them.
const BASE: &str = "base";
const FINALIZE: &str = "finalize";

/// The reason of a failure. That of a command names the command, as the words of E2B do.
fn message(build: &BuildRecord, failure: &BuildFailure) -> String {
    let planned = match &build.plan.recipe {
        Recipe::Steps { steps, .. } => failure.step.and_then(|at| steps.get(usize::try_from(at).ok()?)),
        Recipe::Dockerfile { .. } | Recipe::Awaited => None,
    };
    match (planned.map(|planned| &planned.step), failure.exit_code) {
        (Some(Step::Run(Command::Login(line))), Some(code)) => {
            format!("failed to run command '{line}': exit status {code}")
        }
        _ => failure.failure.reason.clone(),
    }
}

fn reason(build: &BuildRecord) -> Option<Reason> {
    let of = |failure: &BuildFailure| {
        let is_over =
            |step: &dorm_store::BuildStep| matches!(step.state, BuildStepState::Done | BuildStepState::Cached);
        let outside = || if build.base.is_some() && build.steps.iter().all(is_over) { FINALIZE } else { BASE };
        let step = failure.step.and_then(|at| step(build, at)).unwrap_or_else(|| outside().to_owned());
        Reason { message: message(build, failure), step: Some(step) }
    };
    match &build.state {
        BuildState::Failed(failure) => Some(of(failure)),
        BuildState::Cancelled => Some(Reason { message: "the build was cancelled".to_owned(), step: None }),
        BuildState::Reserved
        | BuildState::Queued
        | BuildState::Running
        | BuildState::Finishing
        | BuildState::Succeeded => None,
    }
}
