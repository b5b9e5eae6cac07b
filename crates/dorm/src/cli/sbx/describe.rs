//! `dorm sbx describe`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::checkpoints;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;

/// Options of `dorm sbx describe`.
#[derive(Debug, clap::Args)]
pub(crate) struct DescribeOptions {
    /// The sandbox's id, or its name until it is terminated
    id: String,
}

/// Prints all details of a sandbox.
pub(super) async fn run(client: &Client, options: DescribeOptions, format: Format) -> Done {
    let sandbox = client.describe(&options.id).await?;
    match format {
        Format::Json => output::json(&sandbox)?,
        Format::Table => output::fields(&fields(&sandbox))?,
    }
    Ok(exit::OK)
}

fn fields(sandbox: &wire::Sandbox) -> Vec<(&'static str, String)> {
    let moment = |time: Option<wire::Time>| time.map_or_else(shown::none, shown::moment);
    let limit = |seconds: Option<f64>| seconds.map_or_else(shown::none, shown::length);
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    let image = sandbox.sleep_image.map_or_else(shown::none, |image| {
        let taken = shown::moment(image.taken_at);
        let files = if image.keeps == wire::Kept::Files { ", files only" } else { "" };
        format!("generation {}, {}, taken at {taken}{files}", image.generation, shown::size(image.bytes))
    });
    let labels: Vec<_> = sandbox.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut fields = vec![
        ("id", sandbox.id.clone()),
        ("name", text(&sandbox.name)),
        ("project", sandbox.project.clone()),
        ("state", shown::state(sandbox)),
        ("generation", sandbox.generation.to_string()),
        ("started with", began_with(sandbox)),
        ("image's command", if sandbox.start { "started" } else { "not started" }.to_owned()),
        ("sleep image", image),
        ("image", sandbox.image.clone()),
        ("snapshot", text(&sandbox.snapshot)),
        ("cpus", shown::cpus(sandbox.resources.cpu_millis)),
        ("memory", shown::size(sandbox.resources.memory_bytes)),
        ("disk", shown::size(sandbox.resources.disk_bytes)),
        ("processes", sandbox.resources.processes.to_string()),
        ("egress", shown::egress(&sandbox.egress)),
        ("headers", list(&shown::headers(&sandbox.egress))),
        ("env", list(&sandbox.env)),
        ("secrets", list(&sandbox.secrets)),
        ("labels", list(&labels)),
        ("timeout", limit(sandbox.timeout_secs)),
        ("idle timeout", limit(sandbox.idle_timeout_secs)),
        ("timeout after wake", limit(sandbox.timeout_after_wake_secs)),
        ("max run", limit(sandbox.max_run_secs)),
        ("on timeout", shown::word(&sandbox.on_timeout)),
        ("on suspend failure", shown::word(&sandbox.on_suspend_failure)),
        ("suspendable", yes_no(sandbox.suspendable)),
        ("wakes on", shown::word(&sandbox.wake)),
        ("ports", shown::ports(sandbox.port_access, sandbox.port_host.as_deref(), &sandbox.port_rules)),
        ("sleep images kept", sandbox.keep_generations.to_string()),
        ("on unrestorable", shown::word(&sandbox.on_unrestorable)),
        ("checkpoints", checkpoints::line(sandbox.checkpoints.as_ref())),
        ("created", shown::moment(sandbox.created_at)),
        ("created by", shown::caller(sandbox.created_by.as_ref())),
        ("last active", shown::moment(sandbox.last_active_at)),
        ("last started", moment(sandbox.last_started_at)),
        ("running since", moment(sandbox.running_since)),
        ("expires", moment(sandbox.expires_at)),
    ];
    for (program, entries) in &sandbox.annotations {
        let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
        fields.push(("annotations", format!("{program}: {}", list(&entries))));
    }
    if sandbox.paused_for_disk {
        fields.push(("paused", "until the host's disk has free space".to_owned()));
    }
    if let Some(silent) = &sandbox.unreachable {
        fields.push(("unreachable", format!("since {}: {}", shown::moment(silent.since), silent.reason)));
    }
    if let Some(failed) = &sandbox.suspend_failures {
        let next = shown::moment(failed.next_attempt_at);
        fields.push(("failed suspends", format!("{}, next attempt after {next}: {}", failed.count, failed.reason)));
    }
    for attached in &sandbox.volumes {
        let part = attached.subpath.as_ref().map_or_else(String::new, |part| format!(", its directory {part}"));
        let access = if attached.read_only { ", read-only" } else { "" };
        fields.push(("volume", format!("{} at {}{access}{part}", attached.volume, attached.path)));
    }
    for hold in &sandbox.holds {
        fields.push(("held", format!("until {}: {} ({})", shown::moment(hold.until), hold.reason, hold.id)));
    }
    for older in &sandbox.older_images {
        let taken = shown::moment(older.taken_at);
        fields.push((
            "older image",
            format!("generation {}, {}, taken at {taken}", older.generation, shown::size(older.bytes)),
        ));
    }
    if let Some(operation) = &sandbox.operation {
        fields.push(("operation", format!("{}, deadline {}", operation.id, shown::moment(operation.deadline))));
    }
    if let Some(cause) = &sandbox.cause {
        let reason = cause.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        fields.push(("cause", format!("{}{reason}", shown::word(&cause.kind))));
    }
    if let Some(at) = sandbox.terminated_at {
        fields.push(("terminated", shown::moment(at)));
    }
    fields
}

fn began_with(sandbox: &wire::Sandbox) -> String {
    match (sandbox.restored, sandbox.restored_generation) {
        (wire::Restored::None, _) => "image only".to_owned(),
        (wire::Restored::Filesystem, _) => "files".to_owned(),
        (wire::Restored::Files, Some(generation)) => format!("files of generation {generation}"),
        (wire::Restored::Files, None) => "files".to_owned(),
        (wire::Restored::Memory, Some(generation)) => format!("memory and files of generation {generation}"),
        (wire::Restored::Memory, None) => "memory and files of a snapshot".to_owned(),
    }
}

fn list(words: &[String]) -> String {
    if words.is_empty() { shown::none() } else { words.join(", ") }
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
