//! `dorm sbx checkpoint`: takes, lists, describes and removes snapshots.

use std::time::Duration;

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::Client;
use jiff::Timestamp;

use super::{remote, transfer};
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Options of `dorm sbx checkpoint`: a sandbox, or a subcommand for snapshots.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CheckpointOptions {
    /// The sandbox's id or name
    #[arg(required = true)]
    id: Option<String>,
    /// Contents: only files, or also memory and processes
    #[arg(long, value_enum, default_value = "filesystem", value_name = "TYPE")]
    checkpoint_type: CheckpointType,
    /// Do not wait until the snapshot is complete; `dorm sbx checkpoint describe` shows its status
    #[arg(long)]
    no_wait: bool,
    /// How long to wait; after this time the snapshot continues in the background
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "300s")]
    timeout: f64,
    /// Delete the snapshot automatically after this time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    expires: Option<f64>,
    /// A name under which it serves as an image, such as my-snap or my-snap:v2; no image, template
    /// or other snapshot may have it. Removing the snapshot frees it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A label for the snapshot
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    #[command(subcommand)]
    verb: Option<CheckpointVerb>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum CheckpointType {
    /// Only files: a sandbox created from it boots, its CPU and memory can differ, and its disk can
    /// be larger
    Filesystem,
    /// Memory, processes and files: a sandbox created from it continues where it was
    Memory,
}

impl From<CheckpointType> for wire::SnapshotKind {
    fn from(kind: CheckpointType) -> Self {
        match kind {
            CheckpointType::Filesystem => Self::Filesystem,
            CheckpointType::Memory => Self::Memory,
        }
    }
}

#[derive(Debug, Subcommand)]
enum CheckpointVerb {
    /// List snapshots; ALONE is the space that removing only this snapshot frees, SHARED the space
    /// it shares with others
    Ls {
        /// List only snapshots of this sandbox, by id
        #[arg(long, value_name = "ID")]
        sandbox: Option<String>,
    },
    /// Show all details of a snapshot
    Describe {
        /// The snapshot's id or name
        snapshot: String,
    },
    /// Remove snapshots; sandboxes created from memory snapshots are not affected. A filesystem
    /// snapshot cannot be removed while a sandbox depends on it; see --when-free
    Rm {
        /// The snapshots' ids or names
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
        /// Delete a snapshot in use as soon as nothing uses it; nothing more can be created from it
        #[arg(long)]
        when_free: bool,
    },
    /// Write a snapshot to a file, for import on another host
    ///
    /// The file contains all layers that the snapshot is based on, but not its image, which the
    /// other host must have, too. A memory snapshot of a sandbox with secrets is refused.
    Export(transfer::ExportOptions),
    /// Import a snapshot from an exported file
    ///
    /// The snapshot gets a new id. If the file is damaged or refused, nothing of it is kept.
    Import(transfer::ImportOptions),
    /// Push a snapshot to an image registry, from which other hosts can pull it
    ///
    /// Data that the registry already has is not sent again, even after an interrupted push. As
    /// with export, the image is not included. Credentials are read from the Docker configuration
    /// of the user that the daemon runs as.
    Push(remote::PushOptions),
    /// Pull a snapshot from a registry
    ///
    /// The snapshot gets a new id. If it is damaged or refused, nothing of it is kept.
    Pull(remote::PullOptions),
    /// Create a filesystem snapshot from a memory snapshot, which is kept
    ///
    /// This also works if the memory was written by another build of the engine or on another CPU,
    /// so that no sandbox can continue from it.
    Files(transfer::FilesOptions),
}

/// Runs `dorm sbx checkpoint`.
pub(super) async fn run(client: &Client, options: CheckpointOptions, format: Format) -> Done {
    match (options.verb, options.id) {
        (Some(CheckpointVerb::Ls { sandbox }), _) => {
            let snapshots = client.snapshots(sandbox.as_deref()).await?;
            match format {
                Format::Json => output::json(&snapshots)?,
                Format::Table => table(&snapshots)?,
            }
            crate::cli::quarantine::tell(client, "snapshot").await;
            Ok(exit::OK)
        }
        (Some(CheckpointVerb::Describe { snapshot }), _) => {
            let snapshot = client.snapshot(&snapshot).await?;
            match format {
                Format::Json => output::json(&snapshot)?,
                Format::Table => output::fields(&fields(&snapshot))?,
            }
            Ok(exit::OK)
        }
        (Some(CheckpointVerb::Rm { snapshots, when_free }), _) => {
            for snapshot in snapshots {
                client.delete_snapshot(&snapshot, when_free).await?;
                let what = if when_free { "is deleted as soon as nothing uses it" } else { "is removed" };
                output::talk(&format!("snapshot {snapshot} {what}"));
            }
            Ok(exit::OK)
        }
        (Some(CheckpointVerb::Export(options)), _) => transfer::export(client, options).await,
        (Some(CheckpointVerb::Import(options)), _) => transfer::import(client, options, format).await,
        (Some(CheckpointVerb::Push(options)), _) => remote::push(client, options, format).await,
        (Some(CheckpointVerb::Pull(options)), _) => remote::pull(client, options, format).await,
        (Some(CheckpointVerb::Files(options)), _) => transfer::files(client, options, format).await,
        (None, Some(id)) => {
            let labels = options.label.into_iter().collect();
            let kind = options.checkpoint_type.into();
            let wait = !options.no_wait;
            let (name, expires_secs) = (options.name, options.expires);
            let asked = wire::CheckpointRequest { kind, name, wait, labels, expires_secs };
            take(client, &id, &asked, options.timeout, format).await
        }
        (None, None) => Err(Problem::usage("no sandbox given", "give one, or see `dorm sbx checkpoint --help`")),
    }
}

async fn take(client: &Client, id: &str, asked: &wire::CheckpointRequest, timeout: f64, format: Format) -> Done {
    let progress = Progress::new(&format!("taking a snapshot of {id}"));
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
    let taken = tokio::time::timeout(limit, client.checkpoint(id, asked)).await;
    drop(progress);
    let Ok(snapshot) = taken else {
        let message = format!("the snapshot of {id} is not complete after {}", shown::length(timeout));
        return Err(Problem::failed(message, "it continues in the background: see `dorm sbx checkpoint ls`"));
    };
    let snapshot = snapshot?;
    match format {
        Format::Json => output::json(&snapshot)?,
        Format::Table => table(&[snapshot])?,
    }
    Ok(exit::OK)
}

pub(super) fn table(snapshots: &[wire::Snapshot]) -> Result<(), Problem> {
    let now = Timestamp::now();
    let row = |snapshot: &wire::Snapshot| {
        vec![
            snapshot.id.clone(),
            snapshot.name.clone().unwrap_or_else(shown::none),
            shown::word(&snapshot.kind),
            shown::word(&snapshot.status),
            snapshot.source.clone(),
            snapshot.generation.to_string(),
            snapshot.image.chars().take(12).collect(),
            snapshot.parent.clone().unwrap_or_else(shown::none),
            shown::size(snapshot.alone_bytes.unwrap_or(snapshot.bytes)),
            snapshot.shared_bytes.map_or_else(shown::none, shown::size),
            shown::age(snapshot.created_at, now),
        ]
    };
    let titles =
        ["SNAPSHOT", "NAME", "KIND", "STATUS", "SANDBOX", "GENERATION", "IMAGE", "PARENT", "ALONE", "SHARED", "AGE"];
    output::table(&titles, &snapshots.iter().map(row).collect::<Vec<_>>())
}

fn fields(snapshot: &wire::Snapshot) -> Vec<(&'static str, String)> {
    let labels: Vec<_> = snapshot.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    vec![
        ("id", snapshot.id.clone()),
        ("name", text(&snapshot.name)),
        ("kind", shown::word(&snapshot.kind)),
        ("status", shown::word(&snapshot.status)),
        ("reason", text(&snapshot.reason)),
        ("project", snapshot.project.clone()),
        ("sandbox", snapshot.source.clone()),
        ("generation", snapshot.generation.to_string()),
        ("parent", text(&snapshot.parent)),
        ("image", snapshot.image.clone()),
        ("cpus", shown::cpus(snapshot.resources.cpu_millis)),
        ("memory", shown::size(snapshot.resources.memory_bytes)),
        ("disk", shown::size(snapshot.resources.disk_bytes)),
        ("inherited", snapshot.inherited.as_ref().map_or_else(|| "unknown".to_owned(), inherited)),
        ("size", shown::size(snapshot.bytes)),
        ("alone", snapshot.alone_bytes.map_or_else(shown::none, shown::size)),
        ("shared", snapshot.shared_bytes.map_or_else(shown::none, shown::size)),
        ("shares data", if snapshot.shares_data { "yes" } else { "no" }.to_owned()),
        ("created", shown::moment(snapshot.created_at)),
        ("expires", snapshot.expires_at.map_or_else(shown::none, shown::moment)),
        ("made by", shown::word(&snapshot.made_by)),
        ("delete when free", if snapshot.goes_when_free { "yes" } else { "no" }.to_owned()),
        (
            "held by",
            snapshot.held_by.as_ref().filter(|held| !held.is_empty()).map_or_else(shown::none, |held| held.join(", ")),
        ),
        ("labels", if labels.is_empty() { shown::none() } else { labels.join(", ") }),
    ]
}

/// The settings of sandboxes that start from the snapshot.
fn inherited(settings: &wire::InheritedSettings) -> String {
    let wire::InheritedSettings { egress, port_access, port_host, port_rules, start } = settings;
    let ports = shown::ports(*port_access, port_host.as_deref(), port_rules);
    let start = if *start { ", image's command started" } else { "" };
    format!("egress {}, ports {ports}{start}", shown::egress(egress))
}
