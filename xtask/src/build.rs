//! Builds the program that users run, with the one profile that tests, demo and bench share.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::setup;

/// Builds `dorm` and returns its path.
pub(crate) fn dorm() -> Result<PathBuf> {
    eprintln!("build: cargo build --release --workspace (the first build takes minutes)");
    // The whole workspace: a part of it would have other features, so that everything would be
    // built twice.
    cargo(&["build", "--release", "--workspace"])?;
    Ok(setup::target()?.join("release/dorm"))
}

/// Runs cargo in the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(setup::root()?)
        .status()
        .with_context(|| format!("run cargo {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(())
}
