//! `dorm sbx checkpoint`: takes snapshots, and lists, describes and removes them.

use std::time::Duration;

use clap::Subcommand;
use dorm_api::wire;
use jiff::Timestamp;

use super::{remote, transfer};
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::{exit, shown, values};
use crate::client::Client;

/// Of which sandbox; or what to do with snapshots.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CheckpointOptions {
    /// Its id or name
    #[arg(required = true)]
    id: Option<String>,
    /// What is kept: files alone, or memory and processes, too
    #[arg(long, value_enum, default_value = "filesystem", value_name = "TYPE")]
    checkpoint_type: CheckpointType,
    /// Do not wait for it: `dorm sbx checkpoint describe` tells when it is complete
    #[arg(long)]
    no_wait: bool,
    /// How long to wait for it; it goes on without us
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "300")]
    timeout: f64,
    /// Let it go by itself after this time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    expires: Option<f64>,
    /// A label of the snapshot
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
    #[command(subcommand)]
    verb: Option<CheckpointVerb>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum CheckpointType {
    /// Files alone: what starts from it boots, and may have other CPUs, memory and a larger disk
    Filesystem,
    /// Memory, processes and files: what starts from it goes on
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
    /// List snapshots; ALONE is what is free when one is removed, SHARED what it has in common with others
    Ls {
        /// Only those of this sandbox, by id
        #[arg(long, value_name = "ID")]
        sandbox: Option<String>,
    },
    /// Show all there is to know about a snapshot
    Describe {
        /// Its id
        snapshot: String,
    },
    /// Remove snapshots; sandboxes that were made from memory snapshots live on
    Rm {
        /// Their ids
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
        /// One that is in use goes as soon as it is free; nothing can be created from it any more
        #[arg(long)]
        when_free: bool,
    },
    /// Write a snapshot to a file, to be imported on another host
    ///
    /// All layers below it are in the file, its image is not: it must be on the other host, too. Memory of a sandbox with
    /// secrets is refused.
    Export(transfer::ExportOptions),
    /// Take in a snapshot from a file that was exported
    ///
    /// It gets an id of its own. Nothing is left of a file that is damaged or refused.
    Import(transfer::ImportOptions),
    /// Send a snapshot to a registry of images, to be fetched by other hosts
    ///
    /// What is there already is not sent again, also after a push that was cut off. As with export its image is not part of
    /// it. Logins are those of Docker's configuration, as the user the daemon runs as has it.
    Push(remote::PushOptions),
    /// Fetch a snapshot from a registry
    ///
    /// It gets an id of its own. Nothing is left of one that is damaged or refused.
    Pull(remote::PullOptions),
    /// Make a snapshot of the files of a memory snapshot, which stays
    ///
    /// It works for memory of another build of the engine or CPU, too, from which no sandbox can go on.
    Files(transfer::FilesOptions),
}

/// Does it.
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
                let what = if when_free { "goes as soon as it is free" } else { "is removed" };
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
            let asked = wire::CheckpointRequest { kind, wait, labels, expires_secs: options.expires };
            take(client, &id, &asked, options.timeout, format).await
        }
        (None, None) => Err(Problem::usage("no sandbox is named", "name one, or see `dorm sbx checkpoint --help`")),
    }
}

async fn take(client: &Client, id: &str, asked: &wire::CheckpointRequest, timeout: f64, format: Format) -> Done {
    let progress = Progress::new(&format!("taking a snapshot of {id}"));
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
    let taken = tokio::time::timeout(limit, client.checkpoint(id, asked)).await;
    drop(progress);
    let Ok(snapshot) = taken else {
        let message = format!("the snapshot of {id} is not complete after {}", shown::length(timeout));
        return Err(Problem::failed(message, "it goes on without us: look at `dorm sbx checkpoint ls`"));
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
    let titles = ["SNAPSHOT", "KIND", "STATUS", "SANDBOX", "GENERATION", "IMAGE", "PARENT", "ALONE", "SHARED", "AGE"];
    output::table(&titles, &snapshots.iter().map(row).collect::<Vec<_>>())
}

fn fields(snapshot: &wire::Snapshot) -> Vec<(&'static str, String)> {
    let labels: Vec<_> = snapshot.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    vec![
        ("id", snapshot.id.clone()),
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
        ("size", shown::size(snapshot.bytes)),
        ("alone", snapshot.alone_bytes.map_or_else(shown::none, shown::size)),
        ("shared", snapshot.shared_bytes.map_or_else(shown::none, shown::size)),
        ("shares data", if snapshot.shares_data { "yes" } else { "no" }.to_owned()),
        ("created", shown::moment(snapshot.created_at)),
        ("expires", snapshot.expires_at.map_or_else(shown::none, shown::moment)),
        ("made by", shown::word(&snapshot.made_by)),
        ("goes when free", if snapshot.goes_when_free { "yes" } else { "no" }.to_owned()),
        (
            "held by",
            snapshot.held_by.as_ref().filter(|held| !held.is_empty()).map_or_else(shown::none, |held| held.join(", ")),
        ),
        ("labels", if labels.is_empty() { shown::none() } else { labels.join(", ") }),
    ]
}
