//! Checks the structure of the code: dependencies between crates point inward only, modules are
//! named by their file, and the map names every crate and nothing that does not exist. Rules for
//! text are in [`crate::tidy`].

mod circles;
mod diagrams;
mod shipped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::skips;

/// Each crate and its ring. A crate may depend only on crates of a lower ring, or on those named
/// beside it.
const RINGS: &[(&str, u8, &[&str])] = &[
    ("dorm-lifecycle", 0, &[]),
    ("dorm-authority", 0, &["dorm-lifecycle"]),
    ("dorm-steps", 0, &[]),
    ("dorm-build", 0, &[]),
    ("dorm-guest-ids", 0, &[]),
    ("dorm-skip", 0, &[]),
    ("dorm-agent-proto", 1, &[]),
    ("dorm-api-types", 1, &[]),
    ("dorm-cgroup", 1, &[]),
    ("dorm-disk", 1, &[]),
    ("dorm-engine", 1, &[]),
    ("dorm-ports", 1, &[]),
    ("dorm-store", 1, &[]),
    ("dorm-worker", 1, &[]),
    ("dorm-storage", 2, &[]),
    ("dorm-volume", 2, &[]),
    ("dorm-agent-client", 2, &[]),
    ("dorm-memory-image", 2, &[]),
    ("dorm-engine-conformance", 3, &[]),
    ("dorm-service", 3, &[]),
    ("dorm-agent-binary", 3, &[]),
    ("dorm-client", 4, &[]),
    ("dorm-engine-fake", 4, &[]),
    ("dorm-engine-gvisor", 4, &[]),
    ("dorm-net", 4, &[]),
    ("dorm-oci", 4, &[]),
    ("dorm-store-sql", 4, &[]),
    ("dorm-http", 4, &[]),
    ("dorm-testing", 4, &[]),
    ("dorm-api", 5, &[]),
    ("dorm-e2b", 5, &[]),
    ("dorm-agent", 5, &[]),
    ("dorm-prove", 5, &[]),
    ("dorm-sim", 5, &[]),
    ("dorm", 6, &[]),
    ("xtask", 7, &[]),
];

/// The highest ring that knows neither an engine nor HTTP.
const INNER_RING_MAX: u8 = 3;

/// The crates of the inner rings.
pub(crate) fn inner() -> impl Iterator<Item = &'static str> {
    RINGS.iter().filter(|(_, ring, _)| *ring <= INNER_RING_MAX).map(|(name, _, _)| *name)
}

/// Checks everything and prints each violation.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    let packages = packages(root)?;
    arrows(&packages, &mut wrong);
    let mut files = Vec::new();
    for part in ["crates", "sdk/rust", "xtask"] {
        sources(&root.join(part), &mut files)?;
    }
    module_files(root, &files, &mut wrong);
    map(root, &packages, &mut wrong)?;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        named_files(root, page, &mut wrong)?;
    }
    diagrams::check(root, "ARCHITECTURE.md", &mut wrong)?;
    shipped::check(root, &mut wrong)?;
    circles::check(root, &files, &mut wrong)?;
    skips::check(root, &files, &mut wrong)?;
    if !wrong.is_empty() {
        for line in &wrong {
            eprintln!("layers: {line}");
        }
        bail!("{} violations of the code's structure", wrong.len());
    }
    println!("layers: {} crates, {} files, no violations", packages.len(), files.len());
    Ok(())
}

/// Returns the workspace packages, each with the workspace packages that it depends on outside its
/// tests.
fn packages(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let mut packages = BTreeMap::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().context("name")?.to_owned();
        let dependencies = package["dependencies"].as_array().context("dependencies")?;
        let own = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        packages.insert(name, own);
    }
    Ok(packages)
}

fn arrows(packages: &BTreeMap<String, Vec<String>>, wrong: &mut Vec<String>) {
    let ring = |name: &str| RINGS.iter().find(|(crate_name, _, _)| *crate_name == name);
    for (name, dependencies) in packages {
        let Some((_, own, extra)) = ring(name) else {
            wrong.push(format!("crate {name} has no ring: give it one in xtask/src/layers.rs"));
            continue;
        };
        for dependency in dependencies {
            let inward = ring(dependency).is_some_and(|(_, other, _)| other < own);
            if !inward && !extra.contains(&dependency.as_str()) {
                wrong.push(format!("{name} depends on {dependency}, which is not further in"));
            }
        }
    }
    for (name, _, _) in RINGS {
        if !packages.contains_key(*name) {
            wrong.push(format!("xtask/src/layers.rs names {name}, which does not exist"));
        }
    }
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn module_files(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) {
    for path in files.iter().filter(|path| path.file_name().is_some_and(|name| name == "mod.rs")) {
        let name = path.strip_prefix(root).unwrap_or(path).display();
        wrong.push(format!("{name}: modules are named by their file, not mod.rs"));
    }
}

fn map(root: &Path, packages: &BTreeMap<String, Vec<String>>, wrong: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    for name in packages.keys() {
        if !text.contains(&format!("`{name}`")) {
            wrong.push(format!("ARCHITECTURE.md does not name {name}"));
        }
    }
    for word in text.split('`').skip(1).step_by(2) {
        let is_crate = word.starts_with("dorm-") && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if is_crate && !packages.contains_key(word) {
            wrong.push(format!("ARCHITECTURE.md names {word}, which does not exist"));
        }
    }
    Ok(())
}

/// The files that a page names are there.
fn named_files(root: &Path, page: &str, wrong: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("read {page}"))?;
    for word in text.split('`').skip(1).step_by(2) {
        let is_path = word.ends_with(".rs") && word.contains('/');
        if is_path && !root.join(word).exists() {
            wrong.push(format!("{page} names {word}, which does not exist"));
        }
    }
    Ok(())
}
