//! `dorm sbx checkpoints`: the automatic snapshots of a sandbox.

use dorm_api_types as wire;
use dorm_client::Client;
use dorm_lifecycle::RetentionPolicy;

use super::checkpoint::CheckpointType;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;
use crate::values;

/// Options of `dorm sbx checkpoints`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckpointsOptions {
    /// The sandbox's id or name
    id: String,
    /// How often to take a snapshot, such as 10m; at least 10s
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    every: Option<f64>,
    /// Their retention policy, such as 3,24x1h,7x1d: the newest three, and the newest of each of
    /// the last 24 hours and of the last 7 days
    #[arg(long, value_name = "POLICY")]
    keep: Option<RetentionPolicy>,
    /// Contents: only files, or also memory and processes
    #[arg(long, value_enum, value_name = "TYPE")]
    checkpoint_type: Option<CheckpointType>,
    /// Take no more automatic snapshots; existing ones are kept
    #[arg(long, conflicts_with_all = ["every", "keep", "checkpoint_type"])]
    off: bool,
}

/// Options for the automatic snapshots of a new sandbox.
#[derive(Debug, clap::Args)]
pub(super) struct NewCheckpoints {
    /// Take a snapshot automatically this often while the sandbox runs and is used, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    checkpoint_every: Option<f64>,
    /// Retention policy of automatic snapshots: the newest ones, and the newest of each of a number
    /// of intervals [default: 3,24x1h,7x1d]
    #[arg(long, value_name = "POLICY", requires = "checkpoint_every")]
    checkpoint_keep: Option<RetentionPolicy>,
    /// Contents of automatic snapshots: only files, or also memory and processes [default:
    /// filesystem]
    #[arg(long, value_enum, value_name = "TYPE", requires = "checkpoint_every")]
    checkpoint_type: Option<CheckpointType>,
}

impl NewCheckpoints {
    pub(super) fn request(self) -> Option<wire::CheckpointsRequest> {
        self.checkpoint_every.map(|every| wire::CheckpointsRequest {
            every_secs: Some(every),
            kind: self.checkpoint_type.map(Into::into),
            keep: self.checkpoint_keep.map(|policy| policy.to_string()),
        })
    }
}

/// Changes the settings that were given, keeps the others, and prints the result.
pub(super) async fn run(client: &Client, options: CheckpointsOptions, format: Format) -> Done {
    let CheckpointsOptions { id, every, keep, checkpoint_type, off } = options;
    let asked = wire::SetCheckpoints {
        every_secs: every,
        kind: checkpoint_type.map(Into::into),
        keep: keep.map(|policy| policy.to_string()),
        off,
    };
    let sandbox = match asked == wire::SetCheckpoints::default() {
        true => client.describe(&id).await?,
        false => client.set_checkpoints(&id, &asked).await?,
    };
    match format {
        Format::Json => output::json(&sandbox)?,
        Format::Table => output::fields(&fields(sandbox.checkpoints.as_ref()))?,
    }
    Ok(exit::OK)
}

fn fields(checkpoints: Option<&wire::Checkpoints>) -> Vec<(&'static str, String)> {
    let of = |field: fn(&wire::Checkpoints) -> String| checkpoints.map_or_else(shown::none, field);
    vec![
        ("every", of(|checkpoints| shown::length(checkpoints.every_secs))),
        ("type", of(|checkpoints| shown::word(&checkpoints.kind))),
        ("keep", of(|checkpoints| checkpoints.keep.clone())),
    ]
}

/// Returns the settings as one line.
pub(super) fn line(checkpoints: Option<&wire::Checkpoints>) -> String {
    checkpoints.map_or_else(shown::none, |wire::Checkpoints { every_secs, kind, keep }| {
        format!("{} every {}, keep {keep}", shown::word(kind), shown::length(*every_secs))
    })
}
