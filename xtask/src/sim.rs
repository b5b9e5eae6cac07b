//! `cargo xtask sim`: builds the simulator with everything else, so that nothing is built twice,
//! and runs it.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::cargo;
use crate::setup;

/// Runs the simulator with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    cargo(&["build", "--release", "--workspace", "--bins", "--quiet"])?;
    let program = setup::target()?.join("release/dorm-sim");
    let status =
        Command::new(&program).args(arguments).status().with_context(|| format!("run {}", program.display()))?;
    if !status.success() {
        bail!("the simulator found a failure");
    }
    Ok(())
}
