//! Metrics and logs of sandboxes.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{EventKind, Timestamp};
use dorm_service::{ServiceError, UsageSample};
use dorm_store::{EventFilter, EventRecord};
use serde_json::json;

use super::wire::{LogEntry, Metric};
use super::{Call, existing, sandbox_id, show};
use crate::error::Refusal;
use crate::text::{number, parameter};

/// The most sandboxes of one request for metrics.
const MANY: usize = 100;
/// The most lines of a log in one answer.
const LINES_MAX: usize = 1000;

/// Answers a request for the samples of a sandbox between two times.
pub(super) async fn metrics(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let (sandbox, _) = existing(&service, id).await?;
    let second = |seconds: u64| Timestamp::from_millis(seconds.saturating_mul(1000));
    let since = number(request.uri(), "start")?.map(second);
    let until = number::<u64>(request.uri(), "end")?.map(|end| second(end.saturating_add(1)));
    let samples = service.usage_history(&sandbox, since, until).await?;
    Ok(Json(samples.iter().map(metric).collect::<Vec<_>>()).into_response())
}

/// Answers a request for the last sample of several sandboxes. Those without one are left out.
pub(super) async fn metrics_of_many(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked = parameter(request.uri(), "sandbox_ids")?.unwrap_or_default();
    let ids: Vec<&str> = asked.split(',').filter(|id| !id.is_empty()).collect();
    if ids.is_empty() || ids.len() > MANY {
        return Err(Refusal::invalid(format!("sandbox_ids must name 1 to {MANY} sandboxes")));
    }
    let mut found = BTreeMap::new();
    for id in ids {
        let Some(sandbox) = sandbox_id(id) else { continue };
        match service.usage_history(&sandbox, None, None).await {
            Ok(samples) => found.extend(samples.last().map(|last| (id.to_owned(), metric(last)))),
            Err(ServiceError::NoSandbox(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(json!({ "sandboxes": found })).into_response())
}

/// A sample as clients see it.
pub(crate) fn metric(sample: &UsageSample) -> Metric {
    let UsageSample { taken, cpu_millis, resources, usage } = sample;
    let share = f64::from(cpu_millis.unwrap_or(0)) / f64::from(resources.cpu_millis.max(1));
    Metric {
        timestamp: show::time(*taken),
        timestamp_unix: taken.as_millis() / 1000,
        cpu_count: show::cpus(resources.cpu_millis),
        cpu_used_pct: (share * 10_000.0).round() / 100.0,
        mem_used: usage.memory_bytes,
        mem_total: resources.memory_bytes,
        mem_cache: 0,
        disk_used: usage.disk_bytes.unwrap_or(0),
        disk_total: resources.disk_bytes,
    }
}

/// Answers a request for the log of a sandbox: its events, the oldest first.
pub(super) async fn logs(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let (sandbox, _) = existing(&service, id).await?;
    let uri = request.uri();
    let start: u64 = number(uri, "start")?.unwrap_or(0);
    let limit = number(uri, "limit")?.unwrap_or(LINES_MAX).min(LINES_MAX);
    let filter = EventFilter { sandbox: Some(sandbox), ..EventFilter::default() };
    let events = service.events(&filter).await?.into_iter();
    let entries: Vec<LogEntry> =
        events.filter(|event| event.event.at.as_millis() >= start).take(limit).map(|event| entry(&event)).collect();
    let lines: Vec<_> =
        entries.iter().map(|entry| json!({ "timestamp": entry.timestamp, "line": line(entry) })).collect();
    Ok(Json(json!({ "logs": lines, "logEntries": entries })).into_response())
}

/// A line as the command line of E2B parses it.
fn line(entry: &LogEntry) -> String {
    json!({ "level": entry.level, "logger": "dormouse", "message": entry.message }).to_string()
}

/// Answers a request for a part of the log of a sandbox.
pub(super) async fn log_page(id: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let (sandbox, _) = existing(&service, id).await?;
    let uri = request.uri();
    let is_backward = match parameter(uri, "direction")?.as_deref() {
        None | Some("" | "forward") => false,
        Some("backward") => true,
        Some(other) => return Err(Refusal::invalid(format!("direction is '{other}': it must be forward or backward"))),
    };
    let cursor: Option<u64> = number(uri, "cursor")?;
    let limit = number(uri, "limit")?.unwrap_or(LINES_MAX).min(LINES_MAX);
    let least = match parameter(uri, "level")?.filter(|level| !level.is_empty()) {
        None => 0,
        Some(level) => rank(&level)
            .ok_or_else(|| Refusal::invalid(format!("level is '{level}': it must be debug, info, warn or error")))?,
    };
    let search = parameter(uri, "search")?.unwrap_or_default();
    let filter = EventFilter { sandbox: Some(sandbox), ..EventFilter::default() };
    let mut events = service.events(&filter).await?;
    if is_backward {
        events.reverse();
    }
    let is_in = |event: &EventRecord| {
        let at = event.event.at.as_millis();
        cursor.is_none_or(|cursor| if is_backward { at <= cursor } else { at >= cursor })
    };
    let wanted = |entry: &LogEntry| rank(entry.level).unwrap_or(0) >= least && entry.message.contains(&search);
    let entries = events.iter().filter(|event| is_in(event)).map(entry).filter(wanted).take(limit);
    Ok(Json(json!({ "logs": entries.collect::<Vec<_>>() })).into_response())
}

fn rank(level: &str) -> Option<u8> {
    ["debug", "info", "warn", "error"].iter().position(|one| *one == level).and_then(|at| u8::try_from(at).ok())
}

fn entry(record: &EventRecord) -> LogEntry {
    let event = &record.event;
    let level = match event.kind {
        EventKind::StartFailed | EventKind::RunLost => "error",
        EventKind::SuspendFailed | EventKind::ResumeFailed | EventKind::SnapshotFailed => "warn",
        _ => "info",
    };
    let message = match &event.detail {
        Some(detail) => format!("{}: {detail}", event.kind.as_str()),
        None => event.kind.as_str().to_owned(),
    };
    let fields = BTreeMap::from([
        ("generation", event.generation.to_string()),
        ("initiator", event.initiator.as_str().to_owned()),
        ("number", record.number.to_string()),
    ]);
    LogEntry { timestamp: show::time(event.at), message, level, fields }
}
