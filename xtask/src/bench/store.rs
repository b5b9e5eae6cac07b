//! The times of the service on a store with very many records, compared with an empty one in the
//! same run. It uses the simulator's program, over the fake engine and SQLite, so that no engine
//! hides the time of the store. The start of the daemon is measured with the real one.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use serde_json::Value;

use super::millis;
use super::rows::Row;

/// Numbers of living sandboxes, terminated ones, and events.
const COUNTS: &str = "1000,1000000,5000000";
/// How much longer an operation may take than on an empty store.
const LIMIT: f64 = 1.5;
/// The operation that an empty store has nothing for.
const PAGE: &str = "list the living, a page of 100";
/// How often the daemon is started on each store.
const STARTS: usize = 15;

/// Returns two rows for each operation: compared with an empty store, and with one with only the
/// living sandboxes. The stores are created in `directory`.
pub(super) fn on_full_store(dorm: &Path, directory: &Path) -> Result<Vec<Row>> {
    eprintln!(
        "bench: a store with {COUNTS} living sandboxes, terminated ones and events; it takes some minutes and 4 GiB"
    );
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let simulator = dorm.with_file_name("dorm-sim");
    let output = std::process::Command::new(&simulator).args(["--scale", COUNTS, "--keep"]).arg(directory).output();
    let output = output.with_context(|| format!("run {}", simulator.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", output.status);
    eprint!("{said}");
    let report: Value = serde_json::from_slice(&output.stdout).context("read the simulator's report")?;
    let mut rows = Vec::new();
    let mut compare = |name: &str, full: &[f64], peers: [&[f64]; 2]| {
        for (beside, peer) in ["an empty store", "the living alone"].into_iter().zip(peers) {
            // An empty store has no page to list.
            if name == PAGE && beside == "an empty store" {
                continue;
            }
            let row = Row::new(format!("full store: {name}"), LIMIT).beside(beside);
            rows.push(Row { ours: full.to_vec(), peer: peer.to_vec(), ..row });
        }
    };
    for row in report["rows"].as_array().into_iter().flatten() {
        let name = row["name"].as_str().context("name")?;
        let number = |key: &str| row[key].as_f64().with_context(|| key.to_owned());
        let (full, empty, living) = (number("full_ms")?, number("empty_ms")?, number("living_ms")?);
        compare(name, &[full], [&[empty], &[living]]);
    }
    let [full, empty, living] = starts(dorm, directory)?;
    compare("daemon start", &full, [&empty, &living]);
    Ok(rows)
}

/// Returns how long `dorm serve` takes until it is ready, in milliseconds: on the full store, the
/// empty one, and the one with only the living.
fn starts(dorm: &Path, directory: &Path) -> Result<[Vec<f64>; 3]> {
    let stores = ["full", "empty", "living"].map(|name| directory.join(name));
    let mut times = [const { Vec::new() }; 3];
    // The first start on each store reads everything for the first time and is not counted.
    for round in 0..=STARTS {
        for (store, times) in stores.iter().zip(&mut times) {
            let began = Instant::now();
            let mut daemon = Daemon::start(
                dorm,
                &store.join("data"),
                &store.join("images"),
                &store.join("log"),
                &["--warm-containers", "0"],
            )?;
            let took = millis(began);
            ensure!(daemon.stop()? == Some(0), "{}", daemon.log());
            if round > 0 {
                times.push(took);
            }
        }
    }
    Ok(times)
}
