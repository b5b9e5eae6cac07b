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
    let stem = format!("{name}-{}", &recipe.hash()[..12]);
    let tar = work.join(format!("{stem}.tar"));
    if !tar.is_file() {
        let new = work.join(format!("new-{name}.tar"));
        build_somehow(recipe, &new, log)?;
        fs::rename(&new, &tar).with_context(|| format!("rename {}", new.display()))?;
    }
    discard_others(work, name, &stem)?;
    Ok(tar)
}

/// Builds the archive in the first way that this host permits.
fn build_somehow(recipe: Recipe, new: &Path, log: &Path) -> Result<()> {
    let Recipe { name, .. } = recipe;
    say(&format!("building the image '{name}', which takes a minute or two"));
    let sources = Sources::of_host();
    // The image uses the same mirror; one that only this host can reach would be useless there.
    let mirror = Some(sources.mirror(RELEASE)).filter(|uri| uri.starts_with("http")).unwrap_or(DEFAULT);
    let mut result = build(recipe, &["--mode=root"], mirror, new, log);
    if result.is_err() {
        say("that failed; trying without mounts, as in a container that forbids them");
        result = build(recipe, &["--mode=root", "--skip=check/canmount"], mirror, new, log);
    }
    if result.is_err() {
        say("that failed, too; trying without entering the new system");
        result = build(recipe, &["--mode=chrootless"], mirror, new, log);
    }
    result.with_context(|| format!("build the image '{name}'"))
}

/// Removes the archives of earlier recipes, and their digests: users import `NAME-*.tar`.
fn discard_others(work: &Path, name: &str, stem: &str) -> Result<()> {
    for entry in fs::read_dir(work).with_context(|| format!("read {}", work.display()))? {
        let path = entry?.path();
        let is_kind = path.extension().is_some_and(|kind| kind == "tar" || kind == "digest");
        let of = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_kind);
        let hash = of.and_then(|of| of.strip_prefix(name)?.strip_prefix('-'));
        let is_hash = hash.is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_hash && of != Some(stem) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_earlier_recipes_are_removed_and_nothing_else() {
        let work = tempfile::tempdir().unwrap();
        let kept = ["base-0123456789ab.tar", "base-0123456789ab.digest", "base-mine.tar", "tools-ba9876543210.tar"];
        let removed = ["base-ba9876543210.tar", "base-ba9876543210.digest"];
        for file in kept.iter().chain(&removed) {
            fs::write(work.path().join(file), "").unwrap();
        }
        discard_others(work.path(), "base", "base-0123456789ab").unwrap();
        assert!(kept.iter().all(|file| work.path().join(file).exists()));
        assert!(!removed.iter().any(|file| work.path().join(file).exists()));
    }
}
