//! Builds the program that users run: with the one profile that tests and demo share, or as it is
//! shipped, for the bench.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::setup;

/// Builds `dorm` and returns its path.
pub(crate) fn dorm() -> Result<PathBuf> {
    Ok(dorm_beside(|| Ok(()))?.0)
}

/// Builds `dorm` while `other` is done; returns its path and the result.
pub(crate) fn dorm_beside<T>(other: impl FnOnce() -> Result<T>) -> Result<(PathBuf, T)> {
    // The whole workspace: a part of it would have other features, so that everything would be
    // built twice.
    beside(&["build", "--release", "--workspace"], other)
}

/// Builds all tests and the programs that they start while `other` is done; returns the path of
/// `dorm` and the result. The tests enable features that the programs alone do not have, so a test
/// run builds nothing but this.
pub(crate) fn tests_beside<T>(other: impl FnOnce() -> Result<T>) -> Result<(PathBuf, T)> {
    beside(&["test", "--release", "--workspace", "--no-run"], other)
}

/// `other` mostly waits for servers and for the disk.
fn beside<T>(arguments: &[&str], other: impl FnOnce() -> Result<T>) -> Result<(PathBuf, T)> {
    let shown = format!("cargo {}", arguments.join(" "));
    eprintln!("build: {shown} (the first build takes many minutes)");
    let mut build = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(setup::root()?)
        .spawn()
        .with_context(|| format!("run {shown}"))?;
    let other = other();
    if other.is_err() {
        // Its compilers end with the crates they are at.
        build.kill().with_context(|| format!("end {shown}"))?;
    }
    let status = build.wait().with_context(|| format!("wait for {shown}"))?;
    let other = other?;
    if !status.success() {
        bail!("{shown} failed");
    }
    Ok((setup::target()?.join("release/dorm"), other))
}

/// Builds `dorm` as it is shipped and returns its path. The simulator, if it is wanted, is built
/// beside it, in a second step: its features must not be those of the daemon.
pub(crate) fn dist(with_simulator: bool) -> Result<PathBuf> {
    eprintln!("build: cargo build --profile dist --locked -p dorm (the first build takes many minutes)");
    cargo(&["build", "--profile", "dist", "--locked", "-p", "dorm"])?;
    if with_simulator {
        cargo(&["build", "--profile", "dist", "--locked", "-p", "dorm-sim"])?;
    }
    Ok(setup::target()?.join("dist/dorm"))
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
