//! The archive of the base image: a small Debian with what agents reach for first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mirror::{DEFAULT, Sources};
use super::process::run;
use super::say;

const RELEASE: &str = "bookworm";

const PACKAGES: &str = "bash,coreutils,python3,git,curl,ca-certificates,sudo,procps";

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
pub(super) fn ensure_tar(work: &Path, log: &Path) -> Result<PathBuf> {
    let tar = work.join(format!("base-{}.tar", &recipe()[..12]));
    if tar.is_file() {
        return Ok(tar);
    }
    say("building the base image, which takes about a minute");
    let sources = Sources::of_host();
    // The same mirror goes into the image; one that only this host can reach would be of no use there.
    let mirror = Some(sources.mirror(RELEASE)).filter(|uri| uri.starts_with("http")).unwrap_or(DEFAULT);
    let new = work.join("new-base.tar");
    let mut result = build(&["--mode=root"], mirror, &new, log);
    if result.is_err() {
        say("that failed; trying without mounts, as in a container that forbids them");
        result = build(&["--mode=root", "--skip=check/canmount"], mirror, &new, log);
    }
    if result.is_err() {
        say("that failed, too; trying without entering the new system");
        result = build(&["--mode=chrootless"], mirror, &new, log);
    }
    result.context("build the base image")?;
    fs::rename(&new, &tar).with_context(|| format!("rename {}", new.display()))?;
    Ok(tar)
}

fn build(mode: &[&str], mirror: &str, tar: &Path, log: &Path) -> Result<()> {
    let mut command = Command::new("mmdebstrap");
    command.args(mode).args(["--variant=minbase", "--aptopt=Acquire::Retries \"3\""]);
    command.arg(format!("--include={PACKAGES}"));
    command.args(EXCLUDED.iter().map(|option| format!("--dpkgopt={option}")));
    command.arg(format!("--customize-hook={CUSTOMIZE}"));
    command.arg(RELEASE).arg(tar).arg(mirror);
    run(&mut command, log)
}

/// A hash of all that makes the image what it is.
fn recipe() -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [RELEASE, PACKAGES, CUSTOMIZE].iter().chain(&EXCLUDED) {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex().to_string()
}
