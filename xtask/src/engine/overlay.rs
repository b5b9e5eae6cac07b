//! The overlay: which Go files are read instead of, or in addition to, those of the private root.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::hooks::Hooks;
use super::{Place, blobs, compile, is_c, root};

/// Writes the changed and generated files and the list of all replacements, and returns the path
/// of the list.
pub(super) fn write(
    place: &Place<'_>,
    root: &Path,
    blobs: &Path,
    (hooks, changed): (&Hooks, &BTreeMap<String, String>),
) -> Result<PathBuf> {
    let directory = place.work.join("overlay");
    super::remove_directory(&directory)?;
    fs::create_dir(&directory).with_context(|| format!("create {}", directory.display()))?;
    let gvisor = root.join(root::GVISOR);
    let mut replaced: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for (file, text) in changed.iter().filter(|(file, _)| !is_c(file)) {
        let path = directory.join(file);
        let parent = path.parent().context("a source file has no directory")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        replaced.insert(gvisor.join(file), path);
    }
    for (file, path) in hooks.files() {
        let target = gvisor.join(file);
        ensure!(file.ends_with(".go"), "{} is not a Go file", path.display());
        ensure!(!target.exists(), "{} would replace {file} of gVisor: change that by a hook", path.display());
        replaced.insert(target, path.to_owned());
    }
    // Go reads embedded files without asking the overlay, so those are placed in the root itself.
    for result in blobs::RESULTS {
        place_in(&gvisor, blobs, result)?;
    }
    let list = directory.join("overlay.json");
    write_list(&list, &replaced)?;
    // The program that makes this file is built from the same sources, without it.
    let generated = directory.join("generated.go");
    let text = compile::programs(place, root, &list)?;
    fs::write(&generated, text).with_context(|| format!("write {}", generated.display()))?;
    replaced.insert(gvisor.join(compile::GENERATED), generated);
    write_list(&list, &replaced)?;
    Ok(list)
}

fn write_list(list: &Path, replaced: &BTreeMap<PathBuf, PathBuf>) -> Result<()> {
    let text = serde_json::json!({ "Replace": replaced }).to_string();
    fs::write(list, text).with_context(|| format!("write {}", list.display()))
}

/// Copies a file to the same path below `root`. It is there as a whole or not at all.
fn place_in(root: &Path, from: &Path, file: &str) -> Result<()> {
    let (source, target) = (from.join(file), root.join(file));
    let new = target.with_extension("new");
    fs::copy(&source, &new).with_context(|| format!("copy {} to {}", source.display(), new.display()))?;
    fs::rename(&new, &target).with_context(|| format!("rename {}", new.display()))
}
