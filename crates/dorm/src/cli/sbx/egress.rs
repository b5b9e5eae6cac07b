//! `dorm sbx egress`.

use dorm_api_types as wire;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::Done;
use crate::client::Client;
use crate::values;

/// Options of `dorm sbx egress`.
#[derive(Debug, clap::Args)]
pub(crate) struct EgressOptions {
    /// The sandbox's id or name
    id: String,
    /// Where it may connect to: public, closed, a comma-separated list of what is allowed, or rules
    /// in their order, such as deny:10.0.0.0/8,allow:*.example.com,default:public
    #[arg(value_name = "WHERE", value_parser = values::egress)]
    egress: wire::Egress,
}

/// Replaces the egress policy of a sandbox and prints the sandbox.
pub(super) async fn egress(client: &Client, options: EgressOptions, format: Format) -> Done {
    table::one(&client.set_egress(&options.id, &wire::SetEgress { egress: options.egress }).await?, format)
}
