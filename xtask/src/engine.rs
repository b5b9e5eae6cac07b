//! `cargo xtask engine`: builds `dorm-runsc`, the gVisor that Dormouse ships.
//!
//! ```text
//! packages of Debian ─► private root ───┐
//! hooks, files of engines/gvisor-mapped ┼─► overlay.json ─► seccomp programs ─► go build ─► dorm-runsc
//! archive of the release ─► blobs ──────┘
//! ```
//!
//! Nothing is installed on the host. The sources are exactly those of one Debian package; hooks
//! change them by anchors, so a hook that no longer fits is an error and never a silent difference.
//! A build whose inputs have not changed is not repeated. Each part is made under another name and
//! renamed when it is complete, so an interrupted build is repeated from its last complete part.

mod blobs;
mod compile;
mod hooks;
mod licences;
mod overlay;
mod root;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::setup;

/// The name of the program.
pub(crate) const NAME: &str = "dorm-runsc";
/// Our files and hooks, relative to the repository.
pub(crate) const SOURCES: &str = "engines/gvisor-mapped";
/// The version that the program reports: the release of its sources, and the number of our changes
/// to it.
pub(crate) const VERSION: &str = "0.0~20240729.0+dorm12";
/// The version of the Debian package with the sources.
const PACKAGE: &str = "0.0~20240729.0-4~bpo12+2";
/// To be raised when this code builds something else from the same inputs.
const RECIPE: u32 = 2;

/// The built engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    /// The program.
    pub(crate) program: PathBuf,
    /// The notice of what was changed, and the licences of everything that is linked into it.
    pub(crate) licences: PathBuf,
}

/// Where a build works.
struct Place<'a> {
    /// The directory that only builds of the engine write to.
    work: PathBuf,
    log: &'a Path,
}

/// Builds the engine and prints its path.
///
/// # Errors
/// If it cannot be built, with the reason.
pub(crate) fn run(from: Option<&Path>) -> Result<()> {
    let engine = setup::engine(from)?;
    println!("{}", engine.program.display());
    Ok(())
}

/// Builds the engine from `sources` in the directory `engine` of `work`, unless it exists.
///
/// # Errors
/// If it cannot be built, with the reason.
pub(crate) fn ensure_built(sources: &Path, work: &Path, log: &Path) -> Result<Engine> {
    let place = Place { work: work.join("engine"), log };
    let hooks = hooks::Hooks::read(sources)?;
    let key = key(&hooks);
    let noted = place.work.join("dorm-runsc.key");
    let engine = Engine { program: place.work.join(NAME), licences: place.work.join("dorm-runsc.licences") };
    let is_built = fs::read_to_string(&noted).is_ok_and(|built| built.trim_end() == key);
    if is_built && engine.program.is_file() && engine.licences.is_file() {
        return Ok(engine);
    }
    root::requirements()?;
    say("building dorm-runsc, which takes some minutes the first time");
    fs::create_dir_all(&place.work).with_context(|| format!("create {}", place.work.display()))?;
    let root = root::ensure(&place)?;
    let archive = blobs::ensure_archive(&place)?;
    let changed = hooks.apply(|file| {
        let path = if is_c(file) { archive.join(file) } else { root.join(root::GVISOR).join(file) };
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    })?;
    let blobs = blobs::ensure(&place, &archive, &changed)?;
    let overlay = overlay::write(&place, &root, &blobs, (&hooks, &changed))?;
    // From here on the old program no longer belongs to a key.
    remove(&noted)?;
    let new = place.work.join("dorm-runsc.new");
    compile::go(&place, &root, &overlay, &new)?;
    check(&new)?;
    fs::write(&engine.licences, licences::text(&root, &archive, &hooks, &changed)?)
        .with_context(|| format!("write {}", engine.licences.display()))?;
    fs::rename(&new, &engine.program).with_context(|| format!("rename {}", new.display()))?;
    fs::write(&noted, format!("{key}\n")).with_context(|| format!("write {}", noted.display()))?;
    say(&format!("built {} ({VERSION}, {} hooks)", engine.program.display(), hooks.len()));
    Ok(engine)
}

/// Returns whether a source file of gVisor is for a compiler of C. Only the archive of the release
/// has all of these.
fn is_c(file: &str) -> bool {
    [".c", ".cc", ".h", ".S"].iter().any(|end| file.ends_with(end))
}

/// Checks that the program starts and reports its version.
fn check(program: &Path) -> Result<()> {
    let output = Command::new(program).arg("--version").env_clear().output();
    let output = output.with_context(|| format!("execute {}", program.display()))?;
    ensure!(output.status.success(), "{} --version failed ({})", program.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next().unwrap_or_default();
    if version.strip_prefix("runsc version ") != Some(VERSION) {
        bail!("{} reports '{version}' instead of version {VERSION}", program.display());
    }
    Ok(())
}

/// Returns a hash of everything that determines the program.
fn key(hooks: &hooks::Hooks) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(&RECIPE.to_le_bytes());
    for part in [VERSION, PACKAGE].into_iter().chain(root::inputs()).chain(blobs::inputs()).chain(compile::inputs()) {
        add(part.as_bytes());
    }
    for (name, bytes) in hooks.inputs() {
        add(name.as_bytes());
        add(bytes);
    }
    hasher.finalize().to_hex().to_string()
}

/// Returns a short hash that tells results of different `parts` apart.
fn short<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&RECIPE.to_le_bytes());
    for part in parts {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex()[..12].to_owned()
}

/// Returns the directory `NAME-KEY` of `work`, which `make` fills unless it exists. Directories of
/// the same name with other keys are removed.
fn made<'a>(
    work: &Path,
    name: &str,
    parts: impl IntoIterator<Item = &'a str>,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let complete = work.join(format!("{name}-{}", short(parts)));
    if complete.is_dir() {
        return Ok(complete);
    }
    let entries = fs::read_dir(work).with_context(|| format!("list {}", work.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", work.display()))?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    let new = work.join(format!("{name}-new"));
    fs::create_dir(&new).with_context(|| format!("create {}", new.display()))?;
    make(&new)?;
    fs::rename(&new, &complete).with_context(|| format!("rename {}", new.display()))?;
    Ok(complete)
}

/// Gives the program a second name, which replaces an earlier one.
pub(crate) fn link(program: &Path, name: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    if inode(name).is_some() && inode(name) == inode(program) {
        return Ok(());
    }
    let new = name.with_extension("new");
    remove(&new)?;
    let parent = name.parent().context("a program has no directory")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    fs::hard_link(program, &new).with_context(|| format!("link {} to {}", new.display(), program.display()))?;
    fs::rename(&new, name).with_context(|| format!("rename {}", new.display()))
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn say(line: &str) {
    eprintln!("engine: {line}");
}
