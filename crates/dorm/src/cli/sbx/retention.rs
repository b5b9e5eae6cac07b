//! `dorm sbx retention`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::create::OnUnrestorable;
use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;

/// Options of `dorm sbx retention`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("kept").required(true).multiple(true).args(["keep_generations", "on_unrestorable"])))]
pub(crate) struct RetentionOptions {
    /// The sandbox's id or name
    id: String,
    /// How many of its sleep images to keep; an older one is used if the newest is damaged
    #[arg(long, value_name = "COUNT")]
    keep_generations: Option<u32>,
    /// If no sleep image can be restored: fail and stay suspended, or boot fresh, without memory
    /// and files
    #[arg(long, value_enum, value_name = "ACTION")]
    on_unrestorable: Option<OnUnrestorable>,
}

/// Changes the settings that were given and keeps the others.
pub(super) async fn run(client: &Client, options: RetentionOptions, format: Format) -> Done {
    let RetentionOptions { id, keep_generations, on_unrestorable } = options;
    let asked = wire::SetRetention { keep_generations, on_unrestorable: on_unrestorable.map(Into::into) };
    table::one(&client.set_retention(&id, &asked).await?, format)
}
