//! `cargo xtask dist`: builds the release, and packs it as an archive for any x86-64 Linux and as a
//! Debian package.
//!
//! ```text
//! target/dist/dormouse-VERSION-x86_64-linux.tar.gz
//! target/dist/dormouse_VERSION_amd64.deb
//! ```
//!
//! The same files give the same packages, byte for byte: entries are sorted, belong to root, and have the time of the
//! commit or of `SOURCE_DATE_EPOCH`. It needs neither root nor Debian's packaging tools.

mod contents;
mod deb;
mod tarball;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::cargo;
use crate::setup;
use contents::Built;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds and packs the release.
pub(crate) fn run() -> Result<()> {
    let (root, target) = (setup::root()?, setup::target()?);
    eprintln!("dist: cargo build --profile dist --locked -p dorm (several minutes)");
    cargo(&["build", "--profile", "dist", "--locked", "-p", "dorm"])?;
    let directory = target.join("dist");
    let (built, mtime) = (Built::by(&directory.join("dorm"))?, mtime(&root)?);
    let archive = tarball::gzip(&tarball::tar(&contents::archive(&root, &built, VERSION)?, mtime)?)?;
    let package = deb::package(&root, &built, VERSION, mtime)?;
    for (name, bytes) in [
        (format!("dormouse-{VERSION}-x86_64-linux.tar.gz"), archive),
        (format!("dormouse_{}_amd64.deb", deb::version(VERSION)), package),
    ] {
        let path = directory.join(name);
        fs::write(&path, &bytes).with_context(|| format!("write {}", path.display()))?;
        println!("{} ({:.1} MiB)", path.display(), bytes.len() as f64 / f64::from(1 << 20));
    }
    Ok(())
}

/// The modification time of every packed file, in seconds since 1970.
fn mtime(root: &Path) -> Result<u64> {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set.parse().with_context(|| format!("SOURCE_DATE_EPOCH is '{set}', which is not a number of seconds"));
    }
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let output = output.context("run git log")?;
    if !output.status.success() {
        bail!("git knows no commit in {}: set SOURCE_DATE_EPOCH to the time that packed files get", root.display());
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().context("read the time of the commit")
}
