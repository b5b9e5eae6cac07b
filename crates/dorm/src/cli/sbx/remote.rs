//! `dorm sbx checkpoint push` and `pull`: snapshots in registries.

use dorm_api_types as wire;
use dorm_client::{Client, Sse};
use serde::de::DeserializeOwned;

use super::checkpoint::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Options of `dorm sbx checkpoint push`.
#[derive(Debug, clap::Args)]
pub(super) struct PushOptions {
    /// The snapshot's id
    snapshot: String,
    /// Destination: HOST/NAME:TAG
    #[arg(value_name = "REF")]
    reference: String,
    /// Contact a registry on another host without TLS
    #[arg(long)]
    insecure: bool,
}

/// Options of `dorm sbx checkpoint pull`.
#[derive(Debug, clap::Args)]
pub(super) struct PullOptions {
    /// Source: HOST/NAME with :TAG or @sha256:DIGEST
    #[arg(value_name = "REF")]
    reference: String,
    /// Contact a registry on another host without TLS
    #[arg(long)]
    insecure: bool,
    /// Delete the snapshot automatically after this time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    expires: Option<f64>,
    /// A label for the snapshot, in addition to those it has
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
}

/// Pushes a snapshot and prints its reference in the registry.
pub(super) async fn push(client: &Client, options: PushOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("sending {} to {}", options.snapshot, options.reference));
    let asked = wire::PushSnapshot { reference: options.reference, insecure: options.insecure };
    let stream = client.push_snapshot(&options.snapshot, &asked).await?;
    let pushed: wire::PushedSnapshot = follow(stream, &progress, "in the registry").await?;
    drop(progress);
    match format {
        Format::Json => output::json(&pushed)?,
        Format::Table => output::fields(&[
            ("reference", pushed.reference),
            ("manifest", pushed.manifest),
            ("size", shown::size(pushed.bytes)),
            ("sent", shown::size(pushed.sent_bytes)),
        ])?,
    }
    Ok(exit::OK)
}

/// Pulls a snapshot and prints it.
pub(super) async fn pull(client: &Client, options: PullOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("looking for {}", options.reference));
    let asked = wire::PullSnapshot {
        reference: options.reference,
        insecure: options.insecure,
        labels: options.label.into_iter().collect(),
        expires_secs: options.expires,
    };
    let snapshot: wire::Snapshot = follow(client.pull_snapshot(&asked).await?, &progress, "fetched").await?;
    drop(progress);
    match format {
        Format::Json => output::json(&snapshot)?,
        Format::Table => table(&[snapshot])?,
    }
    Ok(exit::OK)
}

/// Shows the progress of a stream and returns its result.
async fn follow<T: DeserializeOwned>(stream: Sse, progress: &Progress, what: &str) -> Result<T, Problem> {
    let mut work = dorm_client::Progress::new(stream);
    while let Some(told) = work.next().await? {
        let total = told.bytes_total.unwrap_or(told.bytes);
        progress.say(format!("{} of {} are {what}", shown::size(told.bytes), shown::size(total)));
    }
    Ok(work.finish().await?)
}
