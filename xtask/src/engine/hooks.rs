//! Hooks: our lines in functions of gVisor, each placed by text that must occur there exactly once.
//!
//! `hooks/*.toml` are lists of hooks, `files/` has our own Go files by their paths in gVisor. A
//! hook applies to the result of those before it: files in the order of their names, hooks in the
//! order in their file.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// A change of one function.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Hook {
    /// The Go file, relative to the sources of gVisor.
    file: String,
    /// The begin of a line that no other line of the file has; empty for the whole file.
    function: String,
    /// Text that occurs exactly once in the function.
    anchor: String,
    place: Place,
    /// Our lines.
    lines: String,
    /// Why the change is needed. For readers.
    why: String,
}

#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
enum Place {
    /// Whole lines, before those of the anchor.
    Before,
    /// Whole lines, after those of the anchor.
    After,
    /// Instead of the text of the anchor.
    Replace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    hook: Vec<Hook>,
}

/// All hooks and files of an engine.
pub(super) struct Hooks {
    /// Each hook with the name of its file.
    hooks: Vec<(String, Hook)>,
    /// Our Go files, by their paths below the sources of gVisor.
    files: BTreeMap<String, PathBuf>,
    /// The bytes of every file that was read, by its name.
    inputs: BTreeMap<String, Vec<u8>>,
}

impl Hooks {
    /// Reads the hooks and files in the directory `sources`.
    ///
    /// # Errors
    /// If there are none, or one is invalid.
    pub(super) fn read(sources: &Path) -> Result<Self> {
        let mut all = Self { hooks: Vec::new(), files: BTreeMap::new(), inputs: BTreeMap::new() };
        let (hooks, files) = (sources.join("hooks"), sources.join("files"));
        for path in files_below(&hooks)? {
            let name = relative(&path, sources)?;
            ensure!(name.ends_with(".toml"), "{} is not a list of hooks: its name must end with .toml", path.display());
            all.add(name, read(&path)?)?;
        }
        ensure!(!all.hooks.is_empty(), "there are no hooks in {}", hooks.display());
        if files.is_dir() {
            for path in files_below(&files)? {
                all.inputs.insert(relative(&path, sources)?, read(&path)?);
                all.files.insert(relative(&path, &files)?, path);
            }
        }
        Ok(all)
    }

    fn add(&mut self, name: String, bytes: Vec<u8>) -> Result<()> {
        let text = std::str::from_utf8(&bytes).with_context(|| format!("read {name}"))?;
        let parsed: HookFile = toml::from_str(text).with_context(|| format!("parse {name}"))?;
        for hook in parsed.hook {
            let Hook { file, function, why, .. } = &hook;
            ensure!(!why.trim().is_empty(), "{name}: the hook in '{function}' of {file} has no reason ('why')");
            self.hooks.push((name.clone(), hook));
        }
        self.inputs.insert(name, bytes);
        Ok(())
    }

    /// Returns the number of hooks.
    pub(super) fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Returns the name and content of everything that was read.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.inputs.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// Returns our Go files, by their paths below the sources of gVisor.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.files.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }

    /// Returns each changed file of gVisor with its new text. `original` reads one.
    ///
    /// # Errors
    /// If a hook does not fit, with the names of its file, Go file, function and anchor.
    pub(super) fn apply(&self, original: impl Fn(&str) -> Result<String>) -> Result<BTreeMap<String, String>> {
        let mut changed: BTreeMap<String, String> = BTreeMap::new();
        for (name, hook) in &self.hooks {
            let before = match changed.get(&hook.file) {
                Some(text) => text.clone(),
                None => original(&hook.file).with_context(|| format!("apply {name}"))?,
            };
            let after = hook.apply(&before).with_context(|| {
                let Hook { file, function, anchor, .. } = hook;
                format!("{name} does not fit {file}, function '{function}', anchor '{}'", anchor.trim_end())
            })?;
            changed.insert(hook.file.clone(), after);
        }
        Ok(changed)
    }
}

impl Hook {
    fn apply(&self, text: &str) -> Result<String> {
        let function = self.function_in(text)?;
        let whole_lines = !matches!(self.place, Place::Replace);
        let anchor = if whole_lines { self.anchor.trim_end_matches('\n') } else { &self.anchor };
        let found = once(&text[function.clone()], anchor, "the anchor")?;
        let (start, end) = (function.start + found, function.start + found + anchor.len());
        let (start, end) = match self.place {
            Place::Before => (line_start(text, start), line_start(text, start)),
            Place::After => (line_end(text, end), line_end(text, end)),
            Place::Replace => (start, end),
        };
        let mut lines = self.lines.clone();
        if whole_lines && !lines.ends_with('\n') {
            lines.push('\n');
        }
        Ok(format!("{}{lines}{}", &text[..start], &text[end..]))
    }

    /// The range of the function: from its line to the line `}` that ends it, or `})` for one in
    /// a call.
    fn function_in(&self, text: &str) -> Result<Range<usize>> {
        if self.function.is_empty() {
            return Ok(0..text.len());
        }
        let starts_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
        let mut starts = text.match_indices(&self.function).map(|(at, _)| at).filter(starts_line);
        let start = starts.next().context("the function is missing")?;
        ensure!(starts.next().is_none(), "the function occurs more than once");
        let ends = ["\n}\n", "\n})\n"].into_iter();
        let ends = ends.filter_map(|end| text[start..].find(end).map(|at| start + at + end.len()));
        Ok(start..ends.min().context("the function has no end")?)
    }
}

fn once(text: &str, part: &str, what: &str) -> Result<usize> {
    ensure!(!part.is_empty(), "{what} is empty");
    let mut found = text.match_indices(part).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => bail!("{what} is missing"),
        (Some(_), Some(_)) => bail!("{what} occurs more than once"),
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The files in a directory and below it, sorted.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn relative(path: &Path, to: &Path) -> Result<String> {
    let relative = path.strip_prefix(to).with_context(|| format!("{} is not in {}", path.display(), to.display()))?;
    Ok(relative.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}
