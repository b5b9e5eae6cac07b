//! The memory limit of a running sandbox is raised: its record and its control group agree about
//! it, whenever the daemon dies.

use anyhow::Result;
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use crate::report::Kind;
use crate::world::Fault;

/// The limits before and after, in bytes.
const MEMORY: [u64; 2] = [512 << 20, 768 << 20];

pub(super) async fn enlarge(daemon: &Daemon, id: &str) -> Result<Value> {
    set(daemon, id, MEMORY[1]).await
}

async fn set(daemon: &Daemon, id: &str, bytes: u64) -> Result<Value> {
    let asked = json!({ "resources": { "memory_bytes": bytes } });
    daemon.ask(Method::PATCH, &format!("/sandboxes/{id}"), Some(asked)).await
}

/// Checks a running sandbox, and lowers its limit again. `told` is the record as first read.
pub(super) async fn judge(
    daemon: &Daemon,
    id: &str,
    told: &Value,
    is_done: bool,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let has = told["resources"]["memory_bytes"].as_u64().unwrap_or_default();
    if !MEMORY.contains(&has) || (is_done && has != MEMORY[1]) {
        faults.push((Kind::DataLost, format!("sandbox {id} has a limit of {has} bytes of memory")));
    }
    set(daemon, id, MEMORY[0]).await?;
    Ok(())
}
