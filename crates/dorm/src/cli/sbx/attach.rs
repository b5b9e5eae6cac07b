//! `dorm sbx attach` and `dorm sbx detach`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::values;

/// Options of `dorm sbx attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachOptions {
    /// The sandbox's id or name
    id: String,
    /// The volume, its path in the sandbox, and optionally read-only access or a directory of the
    /// volume to attach
    #[arg(value_name = "NAME:/PATH[:ro][:subpath=DIR]", value_parser = values::volume)]
    volume: wire::AttachVolume,
}

/// Options of `dorm sbx detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct DetachOptions {
    /// The sandbox's id or name
    id: String,
    /// The path of the volume in the sandbox
    path: String,
}

/// Attaches a volume and prints the sandbox.
pub(super) async fn attach(client: &Client, options: AttachOptions, format: Format) -> Done {
    table::one(&client.attach(&options.id, &options.volume).await?, format)
}

/// Detaches a volume and prints the sandbox.
pub(super) async fn detach(client: &Client, options: DetachOptions, format: Format) -> Done {
    table::one(&client.detach(&options.id, &options.path).await?, format)
}
