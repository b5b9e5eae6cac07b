//! What the service takes on a store with very many records, beside an empty one in the same run: by the simulator's program, over the
//! fake engine and SQLite, so that no engine hides what the store takes.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Row;

/// Living sandboxes, terminated ones, events.
const COUNTS: &str = "1000,1000000,5000000";
/// How much longer anything may take than on an empty store.
const LIMIT: f64 = 1.5;

/// Two rows for each operation: beside an empty store, and beside one with the living alone.
pub(super) fn on_full_store(simulator: &Path) -> Result<Vec<Row>> {
    eprintln!(
        "bench: a store with {COUNTS} living sandboxes, terminated ones and events; it takes some minutes and 4 GiB"
    );
    let output = std::process::Command::new(simulator).args(["--scale", COUNTS]).output();
    let output = output.with_context(|| format!("run {}", simulator.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", output.status);
    eprint!("{said}");
    let report: Value = serde_json::from_slice(&output.stdout).context("read the simulator's report")?;
    let mut rows = Vec::new();
    for row in report["rows"].as_array().into_iter().flatten() {
        let (name, full) = (row["name"].as_str().context("name")?, row["full_ms"].as_f64().context("full_ms")?);
        for (beside, key) in [("an empty store", "empty_ms"), ("the living alone", "living_ms")] {
            let peer = row[key].as_f64().with_context(|| key.to_owned())?;
            let name = format!("full store: {name}, and on {beside}");
            rows.push(Row { ours: vec![full], peer: vec![peer], ..Row::new(name, LIMIT) });
        }
    }
    Ok(rows)
}
