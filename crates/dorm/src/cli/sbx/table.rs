//! Sandboxes as table rows.

use dorm_api_types as wire;
use jiff::Timestamp;

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::exit;

const TITLES: [&str; 9] = ["ID", "NAME", "STATE", "GENERATION", "EXPIRES IN", "AGE", "CPUS", "MEMORY", "IMAGE"];

/// Prints the one sandbox that a verb has changed.
pub(in crate::cli) fn one(sandbox: &wire::Sandbox, format: Format) -> Done {
    match format {
        Format::Json => output::json(sandbox)?,
        Format::Table => rows(std::slice::from_ref(sandbox))?,
    }
    Ok(exit::OK)
}

/// Prints any number of sandboxes.
pub(super) fn many(sandboxes: &[wire::Sandbox], format: Format) -> Done {
    match format {
        Format::Json => output::json(&sandboxes)?,
        Format::Table => rows(sandboxes)?,
    }
    Ok(exit::OK)
}

fn rows(sandboxes: &[wire::Sandbox]) -> Result<(), crate::cli::problem::Problem> {
    let now = Timestamp::now();
    let rows: Vec<_> = sandboxes.iter().map(|sandbox| row(sandbox, now)).collect();
    output::table(&TITLES, &rows)
}

fn row(sandbox: &wire::Sandbox, now: Timestamp) -> Vec<String> {
    vec![
        sandbox.id.clone(),
        sandbox.name.clone().unwrap_or_else(shown::none),
        shown::state(sandbox),
        sandbox.generation.to_string(),
        shown::ahead(sandbox.expires_at, now),
        shown::age(sandbox.created_at, now),
        shown::cpus(sandbox.resources.cpu_millis),
        shown::size(sandbox.resources.memory_bytes),
        shown::digest(&sandbox.image),
    ]
}
