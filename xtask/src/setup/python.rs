//! Environments with packages from the Python registry, each with packages of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::process::run;
use super::say;

/// Creates the environment `place` from a file that lists all its packages, unless it has the same
/// packages already.
pub(super) fn ensure(requirements: &Path, place: &Path, log: &Path) -> Result<PathBuf> {
    let wanted = fs::read(requirements).with_context(|| format!("read {}", requirements.display()))?;
    let complete = place.join("requirements.txt");
    if fs::read(&complete).is_ok_and(|installed| installed == wanted) {
        return Ok(place.to_owned());
    }
    say(&format!("installing the packages of {}", requirements.display()));
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("remove {}", place.display()))?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(place), log)?;
    let mut pip = Command::new(place.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"]).arg(requirements);
    run(&mut pip, log)?;
    // Last, so that an interrupted installation is repeated.
    fs::write(&complete, wanted).with_context(|| format!("write {}", complete.display()))?;
    Ok(place.to_owned())
}
