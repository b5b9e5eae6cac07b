//! The notice that is shipped with the program: what was changed, as the licence of gVisor
//! requires, and the licences of everything that is linked into it, since a Go program contains its
//! libraries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::hooks::Hooks;
use super::{VERSION, root};

const HEAD: &str = "\
dorm-runsc is gVisor (https://gvisor.dev) with changes by the Dormouse authors. gVisor and the changes are licensed
under the Apache License, version 2.0, the text of which follows. The licences of the libraries that the program
contains are below it.
";

/// Returns the text.
pub(super) fn text(root: &Path, archive: &Path, hooks: &Hooks, changed: &BTreeMap<String, String>) -> Result<String> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let mut text = format!("{HEAD}\nVersion: {VERSION}\n\nFiles of gVisor that were changed:\n");
    changed.keys().for_each(|file| text.push_str(&format!("  {file}\n")));
    text.push_str("\nFiles that were added:\n");
    hooks.files().for_each(|(file, _)| text.push_str(&format!("  {file}\n")));
    text.push_str(&format!("\n======== gVisor ========\n\n{}", read(&archive.join("LICENSE"))?));
    for package in root::PACKAGES {
        let path = root.join("usr/share/doc").join(package).join("copyright");
        text.push_str(&format!("\n======== {package} ========\n\n{}", read(&path)?));
    }
    Ok(text)
}
