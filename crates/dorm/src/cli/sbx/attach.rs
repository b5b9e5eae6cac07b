//! `dorm sbx attach` and `dorm sbx detach`.

use dorm_api::wire;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::cli::values;
use crate::client::Client;

/// What to attach to which sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachOptions {
    /// Its id or name
    id: String,
    /// The volume, where it is to appear, and whether it can only be read or which directory of it is meant
    #[arg(value_name = "NAME:/PATH[:ro][:subpath=DIR]", value_parser = values::volume)]
    volume: wire::AttachVolume,
}

/// What to detach from which sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct DetachOptions {
    /// Its id or name
    id: String,
    /// Where the volume appears in it
    path: String,
}

/// Attaches it.
pub(super) async fn attach(client: &Client, options: AttachOptions, format: Format) -> Done {
    table::one(&client.attach(&options.id, &options.volume).await?, format)
}

/// Detaches it.
pub(super) async fn detach(client: &Client, options: DetachOptions, format: Format) -> Done {
    table::one(&client.detach(&options.id, &options.path).await?, format)
}
