//! `dorm operation`: operations in progress and ended ones.

use clap::Subcommand;
use dorm_api_types as wire;

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::{Done, Problem};
use super::shown;
use crate::exit;

/// Options of `dorm operation`.
#[derive(Debug, clap::Args)]
pub(crate) struct OperationOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: OperationVerb,
}

#[derive(Debug, Subcommand)]
enum OperationVerb {
    /// List operations, newest first
    Ls {
        /// Only operations on this sandbox, by id or by the name of a living one
        #[arg(long, value_name = "ID")]
        sandbox: Option<String>,
        /// Largest number of operations to list
        #[arg(long, value_name = "COUNT", default_value_t = 100,
            value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// Wait until an operation has ended, and show it; the exit code is 1 if it failed
    Wait {
        /// ID of the operation, as events and --no-wait show it
        id: String,
    },
    /// Show one operation
    Describe {
        /// ID of the operation, as events show it
        id: String,
    },
}

/// How long one request waits for the end of an operation.
const WAIT_SECS: u64 = 60;

const TITLES: [&str; 7] = ["ID", "KIND", "SANDBOX", "BY", "STATUS", "STARTED", "TOOK"];

/// Shows operations.
pub(crate) async fn run(options: OperationOptions) -> Done {
    let client = options.connection.client()?;
    let format = options.connection.output;
    match options.verb {
        OperationVerb::Ls { sandbox, limit } => {
            let operations = client.operations(sandbox.as_deref(), limit).await?;
            match format {
                Format::Json => output::json(&operations)?,
                Format::Table => output::table(&TITLES, &operations.iter().map(row).collect::<Vec<_>>())?,
            }
        }
        OperationVerb::Wait { id } => {
            let mut operation = client.operation_within(&id, WAIT_SECS).await?;
            while operation.status == wire::OperationStatus::InProgress {
                operation = client.operation_within(&id, WAIT_SECS).await?;
            }
            show(&operation, format)?;
            if operation.status == wire::OperationStatus::Failed {
                return Ok(exit::FAILED);
            }
        }
        OperationVerb::Describe { id } => {
            show(&client.operation(&id).await?, format)?;
        }
    }
    Ok(exit::OK)
}

fn show(operation: &wire::Operation, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => output::json(operation),
        Format::Table => output::fields(&fields(operation)),
    }
}

fn row(operation: &wire::Operation) -> Vec<String> {
    vec![
        operation.id.clone(),
        operation.kind.clone(),
        operation.sandbox.clone().unwrap_or_else(shown::none),
        shown::by(&operation.initiator, operation.caller.as_ref()),
        shown::word(&operation.status),
        shown::moment(operation.started_at),
        took(operation),
    ]
}

fn fields(operation: &wire::Operation) -> Vec<(&'static str, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(shown::none);
    let mut fields = vec![
        ("id", operation.id.clone()),
        ("kind", operation.kind.clone()),
        ("sandbox", text(&operation.sandbox)),
        ("initiator", operation.initiator.clone()),
        ("caller", shown::caller(operation.caller.as_ref())),
        ("status", shown::word(&operation.status)),
        ("started", shown::moment(operation.started_at)),
        ("deadline", shown::moment(operation.deadline)),
        ("ended", operation.ended_at.map_or_else(shown::none, shown::moment)),
        ("took", took(operation)),
    ];
    if operation.status == wire::OperationStatus::Failed {
        fields.push(("code", text(&operation.code)));
        fields.push(("reason", text(&operation.reason)));
    }
    fields
}

fn took(operation: &wire::Operation) -> String {
    let length = |ended: wire::Time| shown::length(ended.0.duration_since(operation.started_at.0).as_secs_f64());
    operation.ended_at.map_or_else(shown::none, length)
}
