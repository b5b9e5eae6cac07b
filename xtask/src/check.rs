//! `cargo xtask check`: the checks and tests that an ordinary user can run without Debian packages.
//! `cargo xtask test` runs all of them, and the tests that need root, gVisor and images.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{layers, setup, skips, tidy};

/// Crates above ring 3 whose tests need neither gVisor nor another program.
const EDGES: [&str; 5] = ["dorm-engine-fake", "dorm-store-sql", "dorm-http", "dorm-api", "xtask"];
/// Crates of rings 0 to 3 whose tests create control groups, mount file systems or change owners of
/// files.
const PRIVILEGED: [&str; 5] = ["dorm-cgroup", "dorm-disk", "dorm-storage", "dorm-volume", "dorm-worker"];
/// Tests of the other crates that need root: they import an image, whose files belong to guests'
/// ids.
const FOR_ROOT: &str = "(package(dorm-service) | package(dorm-api)) & kind(test) \
    | package(dorm-engine-fake) & test(/files|layers/)";

/// Checks everything, and the subjects of commits since `base`.
pub(crate) fn run(base: Option<&str>) -> Result<()> {
    let root = setup::root()?;
    all_but_tests(&root, base)?;
    setup::ensure_runner()?;
    let packages = layers::inner().filter(|name| !PRIVILEGED.contains(name)).chain(EDGES);
    let mut command = Command::new(env!("CARGO"));
    command.args(["nextest", "run", "--release", "--no-fail-fast"]);
    command.args(packages.flat_map(|name| ["--package", name]));
    command.env("DORM_ALLOW_SKIP", skips::allowed(&root)?);
    let is_root = fs::metadata("/proc/self").context("look at /proc/self")?.uid() == 0;
    if !is_root {
        command.args(["--filterset", &format!("not ({FOR_ROOT})")]);
    }
    step(&root, &mut command)?;
    if !is_root {
        eprintln!("check: NOT run, since they need root: tests of {FOR_ROOT}");
    }
    Ok(())
}

/// The first part of `cargo xtask test`, the fastest checks first.
pub(crate) fn all_but_tests(root: &Path, base: Option<&str>) -> Result<()> {
    eprintln!("check: words, lengths, links, decisions, subjects of commits (cargo xtask tidy)");
    tidy::check(root, base)?;
    eprintln!("check: arrows between crates, the map, skipped tests (cargo xtask layers)");
    layers::check(root)?;
    let cargo = |arguments: &[&str]| step(root, Command::new(env!("CARGO")).args(arguments));
    cargo(&["fmt", "--all", "--check"])?;
    if setup::find("cargo-deny").is_some() {
        // Advisories change without a commit, and come over the network:
        // .github/workflows/nightly.yml checks them.
        cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    } else {
        eprintln!("check: licences and sources of dependencies are NOT checked: cargo install cargo-deny --locked");
    }
    cargo(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// Prints a step, and runs it.
fn step(root: &Path, command: &mut Command) -> Result<()> {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    let shown = format!("cargo {}", arguments.join(" "));
    eprintln!("check: {shown}");
    let status = command.current_dir(root).status().with_context(|| format!("run {shown}"))?;
    if !status.success() {
        bail!("{shown} failed");
    }
    Ok(())
}
