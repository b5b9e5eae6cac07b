//! The private root: Debian's Go and the sources of gVisor with their libraries, unpacked and not
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{PACKAGE, Place, made, say};
use crate::setup::{self, apt, find, logged};

/// The package with the sources of gVisor.
const SOURCES: &str = "golang-gvisor-gvisor-dev";

/// Go, and the libraries that gVisor's package depends on.
pub(super) const PACKAGES: [&str; 23] = [
    SOURCES,
    "golang-1.22-go",
    "golang-1.22-src",
    "golang-github-bits-and-blooms-bitset-dev",
    "golang-github-cenkalti-backoff-dev",
    "golang-github-cilium-ebpf-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-dbus-dev",
    "golang-github-gofrs-flock-dev",
    "golang-github-google-btree-dev",
    "golang-github-google-subcommands-dev",
    "golang-github-kr-pty-dev",
    "golang-github-mohae-deepcopy-dev",
    "golang-github-opencontainers-specs-dev",
    "golang-github-vishvananda-netlink-dev",
    "golang-github-vishvananda-netns-dev",
    "golang-gocapability-dev",
    "golang-golang-x-exp-dev",
    "golang-golang-x-mod-dev",
    "golang-golang-x-sync-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-time-dev",
    "golang-google-protobuf-dev",
];

/// The programs that a build needs, besides those of the root.
const PROGRAMS: [&str; 8] = ["apt-get", "dpkg-deb", "tar", "gcc", "g++", "ld", "objcopy", "nm"];

/// Where the sources of gVisor are in the root.
pub(super) const GVISOR: &str = "usr/share/gocode/src/gvisor.dev/gvisor";

/// Everything that determines the content of the root.
pub(super) fn inputs() -> impl Iterator<Item = &'static str> {
    PACKAGES.into_iter().chain([PACKAGE])
}

/// Checks whether this host can build the engine.
///
/// # Errors
/// If it cannot, with the reason.
pub(super) fn requirements() -> Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "it is built for x86-64 only");
    if !setup::is_debian() {
        bail!("it is built from packages of Debian 12, and this is another system");
    }
    let missing: Vec<_> = PROGRAMS.into_iter().filter(|program| find(program).is_none()).collect();
    ensure!(missing.is_empty(), "these programs are missing: {}", missing.join(", "));
    Ok(())
}

/// Makes the root, unless it exists.
pub(super) fn ensure(place: &Place<'_>) -> Result<PathBuf> {
    made(&place.work, "root", inputs(), |root| fill(place, root))
}

fn fill(place: &Place<'_>, root: &Path) -> Result<()> {
    let packages = place.work.join("packages");
    super::remove_directory(&packages)?;
    fs::create_dir_all(&packages).with_context(|| format!("create {}", packages.display()))?;
    say("downloading Go 1.22 and the sources of gVisor");
    let release = setup::add_backports()?;
    logged(apt().arg("update"), place.log)?;
    let mut download = apt();
    // The user `_apt` cannot write to a directory of root.
    download.args(["--option", "APT::Sandbox::User=root"]);
    logged(download.args(["download", "--target-release", release]).args(PACKAGES).current_dir(&packages), place.log)?;
    let mut unpacked = 0;
    for entry in fs::read_dir(&packages).with_context(|| format!("list {}", packages.display()))? {
        let path = entry.with_context(|| format!("list {}", packages.display()))?.path();
        let name = field(&path, "Package")?;
        if name == SOURCES {
            let version = field(&path, "Version")?;
            ensure!(
                version == PACKAGE,
                "{SOURCES} has version {version} instead of {PACKAGE}, which the hooks were written for"
            );
        }
        if PACKAGES.contains(&name.as_str()) {
            logged(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(root), place.log)?;
            unpacked += 1;
        }
    }
    ensure!(unpacked == PACKAGES.len(), "apt-get downloaded {unpacked} of {} packages", PACKAGES.len());
    super::remove_directory(&packages)
}

fn field(package: &Path, name: &str) -> Result<String> {
    let output = Command::new("dpkg-deb").arg("--field").arg(package).arg(name).output().context("start dpkg-deb")?;
    ensure!(output.status.success(), "dpkg-deb cannot read {}", package.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
