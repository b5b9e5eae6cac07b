//! `cargo xtask dist`: builds the release, and packs it as an archive for any x86-64 Linux and as a
//! Debian package.
//!
//! ```text
//! target/dist/dormouse-VERSION-x86_64-linux.tar.gz
//! target/dist/dormouse_VERSION_amd64.deb
//! ```
//!
//! The same files give the same packages, byte for byte: entries are sorted, belong to root, and
//! have the time of the commit or of `SOURCE_DATE_EPOCH`. It needs neither root nor Debian's
//! packaging tools.

mod contents;
mod deb;
mod tarball;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::cargo;
use crate::setup;
use contents::Built;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The packages of a build.
pub(crate) struct Packages {
    /// The archive for any Linux.
    pub(crate) archive: PathBuf,
    /// The Debian package.
    pub(crate) package: PathBuf,
}

/// Builds, packs, and prints the paths.
pub(crate) fn run() -> Result<()> {
    let Packages { archive, package } = build(None)?;
    for path in [archive, package] {
        let bytes = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?.len();
        println!("{} ({:.1} MiB)", path.display(), bytes as f64 / f64::from(1 << 20));
    }
    Ok(())
}

/// Builds and packs; packs `program` instead of building, if it is given.
pub(crate) fn build(program: Option<&Path>) -> Result<Packages> {
    let (root, target) = (setup::root()?, setup::target()?);
    let directory = target.join("dist");
    let program = match program {
        Some(program) => program.to_owned(),
        None => {
            eprintln!("dist: cargo build --profile dist --locked -p dorm (several minutes)");
            cargo(&["build", "--profile", "dist", "--locked", "-p", "dorm"])?;
            directory.join("dorm")
        }
    };
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let engine = match setup::engine(None) {
        Ok(engine) => Some(engine),
        Err(error) => {
            eprintln!("dist: packing without dorm-runsc, which cannot be built here: {error:#}");
            None
        }
    };
    let (built, mtime) = (Built::by(&program, engine.as_ref())?, mtime(&root)?);
    let archive = tarball::gzip(&tarball::tar(&contents::archive(&root, &built, VERSION)?, mtime)?)?;
    let package = deb::package(&root, &built, VERSION, mtime)?;
    let packages = Packages {
        archive: directory.join(format!("dormouse-{VERSION}-x86_64-linux.tar.gz")),
        package: directory.join(format!("dormouse_{}_amd64.deb", deb::version(VERSION))),
    };
    for (path, bytes) in [(&packages.archive, archive), (&packages.package, package)] {
        fs::write(path, &bytes).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(packages)
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
