//! `dorm sbx hold` and `dorm sbx release`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Options of `dorm sbx hold`.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldOptions {
    /// The sandbox's id or name
    id: String,
    /// How long from now, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
    ttl: f64,
    /// The reason, shown by `dorm sbx describe` and `dorm why`
    #[arg(long)]
    reason: String,
    /// Renew this existing hold for the new time
    #[arg(long, value_name = "HOLD")]
    renew: Option<String>,
}

/// Options of `dorm sbx release`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseOptions {
    /// The sandbox's id or name
    id: String,
    /// The hold's id
    hold: String,
}

/// Keeps a sandbox awake and prints the hold.
pub(super) async fn hold(client: &Client, options: HoldOptions, format: Format) -> Done {
    let asked = wire::HoldRequest { ttl_secs: options.ttl, reason: options.reason, renew: options.renew };
    let hold = client.hold(&options.id, &asked).await?;
    match format {
        Format::Json => output::json(&hold)?,
        Format::Table => {
            let fields = [("id", hold.id), ("reason", hold.reason), ("until", shown::moment(hold.until))];
            output::fields(&fields)?;
        }
    }
    Ok(exit::OK)
}

/// Removes a hold.
pub(super) async fn release(client: &Client, options: ReleaseOptions, format: Format) -> Done {
    table::one(&client.release(&options.id, &options.hold).await?, format)
}
