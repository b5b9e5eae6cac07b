//! Node.js and the packages of the TypeScript parts. That of Debian 12 is too old for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::process::run;
use super::{python, say};

/// The package of Node.js in the Python registry, which needs no other.
const REQUIREMENTS: &str = "xtask/src/setup/node.txt";
/// The directories with packages. A later one may need an earlier one.
const DIRECTORIES: [&str; 4] =
    ["sdk/typescript", "integrations/tanstack-ai", "integrations/e2b/javascript", "integrations/e2b/cli"];

/// Installs Node.js and all packages, unless they are there; returns the directory of `node`.
pub(super) fn ensure(root: &Path, work: &Path, log: &Path) -> Result<PathBuf> {
    let programs = python::ensure(&root.join(REQUIREMENTS), &work.join("node"), log)?.join("bin");
    for directory in DIRECTORIES {
        ensure_packages(&root.join(directory), &programs, log)?;
    }
    Ok(programs)
}

fn ensure_packages(directory: &Path, programs: &Path, log: &Path) -> Result<()> {
    let lock = directory.join("package-lock.json");
    let wanted = fs::read(&lock).with_context(|| format!("read {}", lock.display()))?;
    let complete = directory.join("node_modules/.complete");
    if fs::read(&complete).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    say(&format!("installing npm packages in {}", directory.display()));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut npm = Command::new(programs.join("npm"));
    npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(directory);
    npm.env("PATH", format!("{}:{path}", programs.display()));
    run(&mut npm, log)?;
    // Last, so that an interrupted installation is repeated.
    fs::write(&complete, wanted).with_context(|| format!("write {}", complete.display()))
}
