//! `dorm ensure`: one command gets the sandbox of an environment, whatever state it is in.

pub(super) mod file;
mod init;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use dorm_api_types as wire;
use dorm_client::{Client, Dormouse, EnsureEvent};

use self::file::Definition;
pub(super) use self::init::{InitOptions, init};
use super::build::context::Context;
use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::progress::Progress;
use crate::exit;
use crate::values;

/// Options of `dorm ensure`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "  dorm env init                      # write a first environment.toml from this directory\n  \
                       dorm ensure                        # get its sandbox: running, resumed, restored or created\n  \
                       dorm ensure --key thread-7 --explain"
)]
pub(crate) struct EnsureOptions {
    #[command(flatten)]
    connection: Connection,
    /// File with the definition of the environment
    #[arg(short, long, value_name = "FILE", default_value = "environment.toml")]
    file: PathBuf,
    /// Key of the environment, in place of the one in the file
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Say what would happen and why, and change nothing
    #[arg(long)]
    explain: bool,
    /// Take a lease for this long, such as 10m; renew it with `dorm env renew`
    #[arg(long, value_name = "TIME", value_parser = values::duration, conflicts_with = "explain")]
    lease: Option<f64>,
    /// Cancel the work in progress if this command is interrupted and no other caller waits for it
    #[arg(long, conflicts_with = "explain")]
    cancel_on_leave: bool,
}

/// Gets the sandbox of an environment, and prints how it was had.
pub(crate) async fn run(options: EnsureOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    let Definition { mut request, directory } = Definition::read(&options.file)?;
    if let Some(key) = options.key {
        (request.key, request.thread) = (Some(key), None);
    }
    request.lease_secs = options.lease.or(request.lease_secs);
    if options.cancel_on_leave {
        request.on_leave = Some(wire::OnLeave::Cancel);
    }
    if let Some(directory) = directory {
        let progress = Progress::new("reading the directory");
        let context = Context::open(&directory)?;
        request.source = Some(wire::EnvironmentSource { git: None, context: Some(context.hash.clone()) });
        if !options.explain && !client.has_context(&context.hash).await? {
            progress.say("uploading the directory".to_owned());
            client.upload_context(&context.hash, context.archive()).await?;
        }
    }
    if options.explain {
        return explain(&client.explain_ensure(&request).await?, format);
    }
    let ensured = follow(client, request).await?;
    match format {
        Format::Json => output::json(&ensured)?,
        Format::Table => show(&ensured)?,
    }
    Ok(exit::OK)
}

/// Asks for the environment and shows the work until it is ready, also across restarts of the
/// daemon.
async fn follow(client: Client, request: wire::EnsureRequest) -> Result<wire::Ensured, Problem> {
    let mut events = Dormouse::new(client).ensure(request).events().await?;
    while let Some(event) = events.next().await? {
        match event {
            EnsureEvent::Line(line) => output::talk(&output::harmless(&line.text)),
            EnsureEvent::Ensured(ensured) => return Ok(ensured.info),
            EnsureEvent::Considered(_) | EnsureEvent::Attempt(_) => {}
        }
    }
    Err(events.ended().into())
}

const fn way(way: wire::Way) -> &'static str {
    match way {
        wire::Way::Live => "live",
        wire::Way::Resume => "resume",
        wire::Way::OwnSnapshot => "own snapshot",
        wire::Way::WorkspaceSnapshot => "snapshot of the same definition",
        wire::Way::Create => "create",
    }
}

const fn by(by: wire::EnsuredBy) -> &'static str {
    match by {
        wire::EnsuredBy::Live => "it was running",
        wire::EnsuredBy::Resumed => "resumed",
        wire::EnsuredBy::Restored => "restored from a snapshot",
        wire::EnsuredBy::Created => "created and set up",
    }
}

/// Prints the sandbox on standard output, and how it was had on standard error.
fn show(ensured: &wire::Ensured) -> Result<(), Problem> {
    let phases: Vec<_> =
        ensured.phases.iter().map(|phase| format!("{} {:.2} s", phase.name, phase.took_secs)).collect();
    let phases = if phases.is_empty() { String::new() } else { format!(" ({})", phases.join(", ")) };
    output::talk(&format!("{}{phases}", by(ensured.by)));
    if let Some(restored) = ensured.restored.as_ref().filter(|restored| !restored.new) {
        output::talk(&format!("snapshot {}, {:.0} s old", restored.snapshot, restored.age_secs));
    }
    for lost in &ensured.lost {
        output::talk(&format!("lost: {}", output::harmless(lost)));
    }
    for considered in ensured.considered.iter().filter(|one| one.verdict == wire::Verdict::Broken) {
        let reason = considered.reason.as_deref().unwrap_or_default();
        output::talk(&format!("broken: {}: {}", way(considered.way), output::harmless(reason)));
    }
    if let Some(failure) = &ensured.snapshot_failure {
        output::talk(&format!("the snapshot could not be taken: {}", output::harmless(failure)));
    }
    if !ensured.drift.is_empty() {
        output::talk(&format!("kept although the definition has changed: {}", ensured.drift.join(", ")));
    }
    if let Some(lease) = &ensured.lease {
        output::talk(&format!("lease {} until {}", lease.id, lease.expires_at));
    }
    output::write(format!("{}\n", ensured.sandbox.id).as_bytes())
}

fn explain(explanation: &wire::EnsureExplanation, format: Format) -> Done {
    if format == Format::Json {
        output::json(explanation)?;
        return Ok(exit::OK);
    }
    let verdict = |considered: &wire::Considered| match considered.verdict {
        wire::Verdict::Taken => "would be taken",
        wire::Verdict::Unavailable => "not available",
        wire::Verdict::Broken => "broken",
    };
    let row = |considered: &wire::Considered| {
        let reason = considered.reason.as_deref().unwrap_or_default();
        vec![way(considered.way).to_owned(), verdict(considered).to_owned(), output::harmless(reason)]
    };
    output::table(&["WAY", "VERDICT", "REASON"], &explanation.considered.iter().map(row).collect::<Vec<_>>())?;
    if let Some(refused) = &explanation.refused {
        output::talk(&format!("the request would be refused: {}", output::harmless(refused)));
    }
    if explanation.joins {
        output::talk("its sandbox is being set up; the command would wait for it");
    }
    if std::io::stderr().is_terminal()
        && let Some(id) = &explanation.environment
    {
        output::talk(&format!("environment {id}"));
    }
    Ok(exit::OK)
}
