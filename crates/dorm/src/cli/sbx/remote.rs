//! `dorm sbx checkpoint push` and `pull`: snapshots in registries.

use dorm_api::wire;
use serde::de::DeserializeOwned;

use super::checkpoint::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::{exit, shown, values};
use crate::client::{Client, Sse};

/// Which snapshot, and where to.
#[derive(Debug, clap::Args)]
pub(super) struct PushOptions {
    /// Its id
    snapshot: String,
    /// HOST/NAME:TAG
    #[arg(value_name = "REF")]
    reference: String,
    /// Speak to a registry of another host without TLS
    #[arg(long)]
    insecure: bool,
}

/// Which snapshot, and what it is to have.
#[derive(Debug, clap::Args)]
pub(super) struct PullOptions {
    /// HOST/NAME with :TAG or @sha256:DIGEST
    #[arg(value_name = "REF")]
    reference: String,
    /// Speak to a registry of another host without TLS
    #[arg(long)]
    insecure: bool,
    /// Let it go by itself after this time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    expires: Option<f64>,
    /// A label of the snapshot, beside those it has
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
}

/// Sends it, and tells what it is called there.
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

/// Fetches it, and prints the snapshot.
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

/// What is at the end of a stream, with what was said on the way.
async fn follow<T: DeserializeOwned>(mut stream: Sse, progress: &Progress, what: &str) -> Result<T, Problem> {
    while let Some(event) = stream.next().await? {
        match event.kind.as_str() {
            "progress" => {
                let told: wire::ImportProgress = stream.parse(&event)?;
                let total = told.bytes_total.unwrap_or(told.bytes);
                progress.say(format!("{} of {} are {what}", shown::size(told.bytes), shown::size(total)));
            }
            "done" => return Ok(stream.parse(&event)?),
            _ => {}
        }
    }
    Err(stream.ended().into())
}
