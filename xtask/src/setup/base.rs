//! The archives of images: a small Debian with what agents reach for first, and one with what projects are built with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mirror::{DEFAULT, Sources};
use super::process::run;
use super::say;

const RELEASE: &str = "bookworm";

/// What an image is to have.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    /// Its tag.
    pub(super) name: &'static str,
    packages: &'static str,
}

/// What sandboxes start from unless something else is asked for.
pub(super) const BASE: Recipe =
    Recipe { name: "base", packages: "bash,coreutils,python3,git,curl,ca-certificates,sudo,procps" };

/// What the tests and the bench build projects with.
pub(super) const TOOLS: Recipe =
    Recipe { name: "tools", packages: "bash,coreutils,git,ca-certificates,python3-pip,npm" };

/// Documentation, which nobody reads inside; licences stay.
const EXCLUDED: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// Runs in every mode of mmdebstrap, also where nothing can be started inside of the new system.
const CUSTOMIZE: &str = r#"
set -eu
cd "$1"
echo 'user:x:1000:1000::/home/user:/bin/bash' >> etc/passwd
echo 'user:x:1000:' >> etc/group
echo 'user:!:19000:0:99999:7:::' >> etc/shadow
echo 'user:!::' >> etc/gshadow
mkdir -p home/user
cp -a etc/skel/. home/user/
chown -R 1000:1000 home/user
mkdir -p etc/sudoers.d
echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > etc/sudoers.d/user
chmod 0440 etc/sudoers.d/user
echo sandbox > etc/hostname
printf '127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n' > etc/hosts
rm -f etc/resolv.conf
echo 'nameserver 10.0.0.1' > etc/resolv.conf
: > etc/machine-id
rm -f var/cache/ldconfig/aux-cache var/log/*.log var/log/apt/*
"#;

/// Builds the archive, unless one of the same recipe is there.
pub(super) fn ensure_tar(recipe: Recipe, work: &Path, log: &Path) -> Result<PathBuf> {
    let Recipe { name, .. } = recipe;
    let tar = work.join(format!("{name}-{}.tar", &recipe.hash()[..12]));
    if tar.is_file() {
        return Ok(tar);
    }
    say(&format!("building the image '{name}', which takes a minute or two"));
    let sources = Sources::of_host();
    // The same mirror goes into the image; one that only this host can reach would be of no use there.
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
    // What is half done is thrown away: nothing of it has to be on the disk before the end.
    command.arg("--dpkgopt=force-unsafe-io");
    command.arg(format!("--include={}", recipe.packages));
    command.args(EXCLUDED.iter().map(|option| format!("--dpkgopt={option}")));
    command.arg(format!("--customize-hook={CUSTOMIZE}"));
    command.arg(RELEASE).arg(tar).arg(mirror);
    run(&mut command, log)
}

impl Recipe {
    /// A hash of all that makes the image what it is.
    fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [RELEASE, self.packages, CUSTOMIZE].iter().chain(&EXCLUDED) {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        hasher.finalize().to_hex().to_string()
    }
}
