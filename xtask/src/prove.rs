//! `cargo xtask prove`: `dorm prove` with the images of the set-up.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::setup::Environment;

/// Runs the proof, with `options` for `dorm prove`.
pub(crate) fn run(dorm: &Path, environment: &Environment, options: &[String]) -> Result<()> {
    let mut command = Command::new(dorm);
    command.args(["prove", "--images"]).arg(&environment.images).arg("--runsc").arg(&environment.runsc).args(options);
    let status = command.status().with_context(|| format!("run {}", dorm.display()))?;
    if !status.success() {
        bail!("the proof failed: {status}");
    }
    Ok(())
}
