//! `dorm sbx checkpoints`.

use dorm_api::wire;
use dorm_lifecycle::Ladder;

use super::checkpoint::CheckpointType;
use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::{exit, shown, values};
use crate::client::Client;

/// Of which sandbox, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckpointsOptions {
    /// Its id or name
    id: String,
    /// How often, such as 10m: 10s or more
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    every: Option<f64>,
    /// Which of them are kept, such as 3,24x1h,7x1d: the newest three, and the newest of each of the last 24 hours and 7 days
    #[arg(long, value_name = "LADDER")]
    keep: Option<Ladder>,
    /// What is kept in them: files alone, or memory and processes, too
    #[arg(long, value_enum, value_name = "TYPE")]
    checkpoint_type: Option<CheckpointType>,
    /// Take no more; those that are there stay
    #[arg(long, conflicts_with_all = ["every", "keep", "checkpoint_type"])]
    off: bool,
}

/// Snapshots of a new sandbox that are taken by themselves.
#[derive(Debug, clap::Args)]
pub(super) struct NewCheckpoints {
    /// Take a snapshot of it this often while it runs and is used, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    checkpoint_every: Option<f64>,
    /// Which of these snapshots are kept: the newest ones, and the newest of each of so many intervals [default: 3,24x1h,7x1d]
    #[arg(long, value_name = "LADDER", requires = "checkpoint_every")]
    checkpoint_keep: Option<Ladder>,
    /// What is kept in them: files alone, or memory and processes, too [default: filesystem]
    #[arg(long, value_enum, value_name = "TYPE", requires = "checkpoint_every")]
    checkpoint_type: Option<CheckpointType>,
}

impl NewCheckpoints {
    pub(super) fn request(self) -> Option<wire::CheckpointsRequest> {
        self.checkpoint_every.map(|every| wire::CheckpointsRequest {
            every_secs: Some(every),
            kind: self.checkpoint_type.map(Into::into),
            keep: self.checkpoint_keep.map(|ladder| ladder.to_string()),
        })
    }
}

/// Changes what is said and leaves the rest; prints what holds then.
pub(super) async fn run(client: &Client, options: CheckpointsOptions, format: Format) -> Done {
    let CheckpointsOptions { id, every, keep, checkpoint_type, off } = options;
    let asked = wire::SetCheckpoints {
        every_secs: every,
        kind: checkpoint_type.map(Into::into),
        keep: keep.map(|ladder| ladder.to_string()),
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

/// In one line.
pub(super) fn line(checkpoints: Option<&wire::Checkpoints>) -> String {
    checkpoints.map_or_else(shown::none, |wire::Checkpoints { every_secs, kind, keep }| {
        format!("{} every {}, keep {keep}", shown::word(kind), shown::length(*every_secs))
    })
}
