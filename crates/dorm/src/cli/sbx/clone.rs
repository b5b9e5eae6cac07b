//! `dorm sbx clone`.

use dorm_api::wire;

use super::fork::Volumes;
use super::{secrets, table};
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::progress::Progress;
use crate::client::Client;

/// Of which sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct CloneOptions {
    /// Its id or name
    id: String,
    /// The clone's name; it is ephemeral without one
    #[arg(long)]
    name: Option<String>,
    /// A secret it gets: NAME for the source's own value, or NAME=@FILE for the content of a file. No other one follows
    #[arg(long, value_name = "NAME[=@FILE]", value_parser = secrets::named)]
    secret: Vec<secrets::Named>,
    /// Attach the source's volumes to it as they are, to be read, or not at all. One that takes a single writer, and to which
    /// the source writes, cannot be attached as it is [default: same]
    #[arg(long, value_enum, value_name = "HOW")]
    volumes: Option<Volumes>,
}

/// Clones it; it goes on. The snapshot between the two stays.
pub(super) async fn run(client: &Client, options: CloneOptions, format: Format) -> Done {
    let volumes = options.volumes.map(Into::into).unwrap_or_default();
    let asked = wire::CloneRequest { name: options.name, secrets: secrets::following(options.secret)?, volumes };
    let progress = Progress::new(&format!("cloning {}", options.id));
    let cloned = client.clone_sandbox(&options.id, &asked).await?;
    drop(progress);
    if format == Format::Json {
        output::json(&cloned)?;
        return Ok(crate::cli::exit::OK);
    }
    output::talk(&format!("cloned through snapshot {}, which stays", cloned.snapshot.id));
    table::one(&cloned.sandbox, format)
}
