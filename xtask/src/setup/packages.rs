//! Installs what the host needs: Debian packages, gVisor from the backports, and the test runner.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::mirror::Sources;
use super::process::{find, run};
use super::say;

const REGISTRY: &str = "docker-registry";

/// A required program and the package that provides it.
const PROGRAMS: [(&str, &str); 10] = [
    ("mmdebstrap", "mmdebstrap"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("mkfs.ext4", "e2fsprogs"),
    ("python3", "python3"),
    // For fuzzers.
    ("g++", "g++"),
    // For tests of images from registries.
    (REGISTRY, REGISTRY),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    // For the examples of the API guide.
    ("curl", "curl"),
];

/// Debian splits from Python the modules that `python3 -m venv` needs; they are no program.
const VENV: &str = "python3-venv";
const RELEASE: &str = "bookworm";
const BACKPORTS: &str = "bookworm-backports";
const SOURCES: &str = "/etc/apt/sources.list.d/dormouse-backports.sources";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const NEXTEST: &str = "0.9.151";

/// Installs the packages that are missing.
pub(super) fn ensure(log: &Path) -> Result<()> {
    let mut missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    let without_runsc = find("runsc").is_none();
    if !has_venv() {
        missing.push(VENV);
    }
    if missing.is_empty() && !without_runsc {
        return Ok(());
    }
    let mut wanted = missing.clone();
    wanted.extend(without_runsc.then_some("runsc"));
    if find("apt-get").is_none() || !is_release() {
        bail!(
            "these are missing: {}. Set-up installs them on Debian 12 only; here, install them by hand (runsc is at \
             https://gvisor.dev/docs/user_guide/install/)",
            wanted.join(", ")
        );
    }
    if without_runsc {
        add_backports()?;
    }
    say("updating the package lists");
    run(apt().arg("update"), log)?;
    if !missing.is_empty() {
        say(&format!("installing {}", missing.join(", ")));
        // Tests start their own registries; that of the package would listen on all addresses.
        if missing.contains(&REGISTRY) && Path::new("/run/systemd/system").is_dir() {
            run(Command::new("systemctl").args(["mask", "docker-registry.service"]), log)?;
        }
        let _quiet = NoServices::begin()?;
        run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing), log)?;
    }
    if without_runsc {
        say("installing runsc from the backports");
        let package = format!("runsc/{BACKPORTS}");
        run(apt().args(["install", "--yes", "--no-install-recommends", &package]), log)?;
    }
    wanted.retain(|package| *package != VENV);
    match wanted.iter().find(|package| {
        let program = PROGRAMS.iter().find(|(_, of)| of == *package).map_or(**package, |(program, _)| *program);
        find(program).is_none()
    }) {
        Some(package) => {
            bail!("package {package} is installed, but its program is not on the PATH: add /usr/sbin to it")
        }
        None => Ok(()),
    }
}

/// Installs the emulator of virtual machines, unless it is installed.
pub(super) fn ensure_emulator(log: &Path) -> Result<()> {
    if find("qemu-system-x86_64").is_some() {
        return Ok(());
    }
    if find("apt-get").is_none() {
        bail!("qemu-system-x86_64 is missing: install QEMU for x86-64");
    }
    say("installing qemu-system-x86 from the backports");
    add_backports()?;
    run(apt().arg("update"), log)?;
    let _quiet = NoServices::begin()?;
    let package = ["--target-release", BACKPORTS, "qemu-system-x86"];
    run(apt().args(["install", "--yes", "--no-install-recommends"]).args(package), log)
}

/// Installs the test runner, unless it is installed.
pub(super) fn ensure_nextest(log: &Path) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(std::path::PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    if find("cargo-nextest").is_some() || home.is_some_and(|home| home.join("bin/cargo-nextest").is_file()) {
        return Ok(());
    }
    say("building cargo-nextest, which takes some minutes");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["install", "cargo-nextest", "--locked", "--version", NEXTEST]), log)
}

/// While this value lives, packages do not start services, as far as that can be prevented.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn begin() -> Result<Self> {
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(Self::POLICY);
        match made.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")) {
            Ok(()) => Ok(Self { is_ours: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Self { is_ours: false }),
            Err(error) => Err(error).context(format!("write {}", Self::POLICY)),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = fs::remove_file(Self::POLICY)
        {
            say(&format!(
                "cannot remove {}, which keeps packages from starting services: remove it by hand ({error})",
                Self::POLICY
            ));
        }
    }
}

/// Returns whether Python can make environments.
fn has_venv() -> bool {
    let output = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Returns `apt-get`, which asks nothing.
pub(crate) fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt.args(["--quiet", "--option", "Acquire::Retries=3", "--option", "DPkg::Lock::Timeout=600"]);
    apt
}

/// Returns whether this host runs the release of Debian whose packages are used.
pub(crate) fn is_release() -> bool {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines().any(|line| line.trim_matches('"') == format!("VERSION_CODENAME={RELEASE}"))
}

/// Adds the backports of the mirror in use, in a file of its own, and returns their name.
pub(crate) fn add_backports() -> Result<&'static str> {
    let sources = Sources::of_host();
    if sources.has(BACKPORTS) {
        return Ok(BACKPORTS);
    }
    let mut text = format!(
        "# Written by `cargo xtask setup` of Dormouse, for gVisor.\nTypes: deb\nURIs: {}\nSuites: {BACKPORTS}\n\
         Components: main\n",
        sources.mirror(RELEASE)
    );
    if Path::new(KEYS).is_file() {
        text.push_str(&format!("Signed-By: {KEYS}\n"));
    }
    say(&format!("adding {BACKPORTS} in {SOURCES}"));
    let new = format!("{SOURCES}.new");
    fs::write(&new, text).with_context(|| format!("write {new}"))?;
    fs::rename(&new, SOURCES).with_context(|| format!("rename {new}"))?;
    Ok(BACKPORTS)
}
