//! `dorm sbx clone`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::fork::{Limits, Volumes};
use super::{secrets, table};
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;

/// Options of `dorm sbx clone`.
#[derive(Debug, clap::Args)]
pub(crate) struct CloneOptions {
    /// The sandbox's id or name
    id: String,
    /// Name of the clone
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    limits: Limits,
    /// A secret for the clone: NAME for the source's value, or NAME=@FILE for the content of a
    /// file. The clone gets no other secrets
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// How to attach the source's volumes to the clone: with the same access, read-only, or not at
    /// all. A volume that allows one writer and that the source can write to cannot be attached
    /// with the same access [default: same]
    #[arg(long, value_enum, value_name = "HOW")]
    volumes: Option<Volumes>,
}

/// Clones a sandbox. The source continues, and the snapshot that the clone is created from is kept.
pub(super) async fn run(client: &Client, options: CloneOptions, format: Format) -> Done {
    let volumes = options.volumes.map(Into::into).unwrap_or_default();
    let limits = options.limits;
    let asked = wire::CloneRequest {
        name: options.name,
        timeout_secs: limits.timeout,
        idle_timeout_secs: limits.idle_timeout,
        max_run_secs: limits.max_run,
        on_timeout: limits.on_timeout.map(Into::into),
        secrets: secrets::following(options.secret)?,
        volumes,
        ..wire::CloneRequest::default()
    };
    let progress = Progress::new(&format!("cloning {}", options.id));
    let cloned = client.clone_sandbox(&options.id, &asked).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&cloned)?;
        return Ok(crate::exit::OK);
    }
    output::talk(&format!("cloned from snapshot {}, which is kept", cloned.snapshot.id));
    table::one(&cloned.sandbox, format)
}
