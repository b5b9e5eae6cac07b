//! The archives of images: a small Debian with what agents need first, and one with tools to build
//! projects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mirror::{DEFAULT, Sources};
use super::process::run;
use super::say;

const RELEASE: &str = "bookworm";

/// The content of an image.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    /// Its tag.
    pub(super) name: &'static str,
    /// Names of packages, with spaces or line ends in between.
    packages: &'static str,
}

/// The default image of sandboxes.
pub(super) const BASE: Recipe = Recipe { name: "base", packages: include_str!("../../../images/base/packages.txt") };

/// The image in which the tests and the bench build projects.
pub(super) const TOOLS: Recipe =
    Recipe { name: "tools", packages: "bash coreutils git ca-certificates python3-pip npm" };

/// Documentation is not needed in a sandbox; licences are kept.
const EXCLUDED: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// The changes in the new system: the same as in a build of `images/base/Dockerfile`.
const CUSTOMIZE: &str = include_str!("../../../images/base/customize.sh");

/// Builds the archive, unless one of the same recipe exists.
pub(super) fn ensure_tar(recipe: Recipe, work: &Path, log: &Path) -> Result<PathBuf> {
    let Recipe { name, .. } = recipe;
    let tar = work.join(format!("{name}-{}.tar", &recipe.hash()[..12]));
    if tar.is_file() {
        return Ok(tar);
    }
    say(&format!("building the image '{name}', which takes a minute or two"));
    let sources = Sources::of_host();
    // The image uses the same mirror; one that only this host can reach would be useless there.
    let mirror = Some(sources.mirror(RELEASE)).filter(|uri| uri.starts_with("http")).unwrap_or(DEFAULT);
    let new = work.join(format!("new-{name}.tar"));
    let mut result = build(recipe, &["--mode=root"], mirror, &new, log);
    if result.is_err() {
        say("that failed; trying without mounts, as in a container that forbids them");
        result = build(recipe, &["--mode=root", "--skip=check/canmount"], mirror, &new, log);
    }
    if result.is_err() {
        say("that failed, too; trying without entering the new system");
        result = build(recipe, &["--mode=chrootless"], mirror, &new, log);
    }
    result.with_context(|| format!("build the image '{name}'"))?;
    fs::rename(&new, &tar).with_context(|| format!("rename {}", new.display()))?;
    Ok(tar)
}

fn build(recipe: Recipe, mode: &[&str], mirror: &str, tar: &Path, log: &Path) -> Result<()> {
    let mut command = Command::new("mmdebstrap");
    command.args(mode).args(["--variant=minbase", "--aptopt=Acquire::Retries \"3\""]);
    // An incomplete archive is discarded, so nothing of it must be on the disk before the end.
    command.arg("--dpkgopt=force-unsafe-io");
    let packages: Vec<&str> = recipe.packages.split_whitespace().collect();
    command.arg(format!("--include={}", packages.join(",")));
    command.args(EXCLUDED.iter().map(|option| format!("--dpkgopt={option}")));
    command.arg(format!("--customize-hook={CUSTOMIZE}"));
    command.arg(RELEASE).arg(tar).arg(mirror);
    run(&mut command, log)
}

impl Recipe {
    /// Returns a hash of everything that determines the image.
    fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [RELEASE, self.packages, CUSTOMIZE].iter().chain(&EXCLUDED) {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        hasher.finalize().to_hex().to_string()
    }
}
