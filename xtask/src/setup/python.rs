//! A Python of its own for tests that use packages from the Python registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::process::run;
use super::say;

const REQUIREMENTS: &str = "crates/dorm/tests/generated/requirements.txt";

/// Creates the environment, unless it has the same packages already.
pub(super) fn ensure(root: &Path, work: &Path, log: &Path) -> Result<PathBuf> {
    let (place, requirements) = (work.join("python"), root.join(REQUIREMENTS));
    let wanted = fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    let complete = place.join("requirements.txt");
    if fs::read(&complete).is_ok_and(|installed| installed == wanted) {
        return Ok(place);
    }
    say("installing Python packages for the tests");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("remove {}", place.display()))?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&place), log)?;
    let mut pip = Command::new(place.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"]).arg(&requirements);
    run(&mut pip, log)?;
    // Last, so that an interrupted installation is repeated.
    fs::write(&complete, wanted).with_context(|| format!("write {}", complete.display()))?;
    Ok(place)
}
