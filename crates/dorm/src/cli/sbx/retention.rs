//! `dorm sbx retention`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::create::SleepRetention;
use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;

/// Options of `dorm sbx retention`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("kept").required(true).multiple(true).args(["keep_generations", "on_unrestorable"])))]
pub(crate) struct RetentionOptions {
    /// The sandbox's id or name
    id: String,
    #[command(flatten)]
    retention: SleepRetention,
}

/// Changes the settings that were given and keeps the others.
pub(super) async fn run(client: &Client, options: RetentionOptions, format: Format) -> Done {
    let SleepRetention { keep_generations, on_unrestorable } = options.retention;
    let asked = wire::SetRetention { keep_generations, on_unrestorable: on_unrestorable.map(Into::into) };
    table::one(&client.set_retention(&options.id, &asked).await?, format)
}
