//! `dorm sbx egress`.

use dorm_api_types as wire;
use dorm_client::Client;

use super::table;
use crate::cli::output::Format;
use crate::cli::problem::{Done, Problem};
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
    /// Add a header with a project secret to its HTTPS requests, such as 'api.example.com:
    /// Authorization: Bearer {API_KEY}'. The daemon adds it outside the sandbox, which never gets
    /// the secret
    #[arg(long, value_name = "HOST: HEADER: VALUE", value_parser = values::given_header)]
    header: Vec<values::GivenHeader>,
}

/// Replaces the egress policy of a sandbox and prints the sandbox.
pub(super) async fn egress(client: &Client, options: EgressOptions, format: Format) -> Done {
    let egress = values::with_headers(Some(options.egress.clone()), options.header);
    let egress = egress.map_err(|error| Problem::usage(error, ""))?.unwrap_or(options.egress);
    table::one(&client.set_egress(&options.id, &wire::SetEgress { egress }).await?, format)
}
