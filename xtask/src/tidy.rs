//! Rules for tracked text that no compiler checks: retired words, lengths of files and functions,
//! the width of comments, links, the numbers of decisions, the glossary, and the subjects of
//! commits.
//!
//! Old debt is in `.config/tidy.txt`: for each file, how many retired words and long functions it
//! may still have. These numbers may only fall; a file that is not listed may have none.

mod comments;
mod decisions;
mod functions;
mod glossary;
mod links;
mod prose;
mod ratchet;
mod subjects;
mod words;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

pub(crate) use prose::code;
use ratchet::{Counts, Ratchet};

const RATCHET: &str = ".config/tidy.txt";
/// The extensions of files that are written by hand.
const EXTENSIONS: [&str; 5] = ["rs", "md", "toml", "py", "sh"];
/// The table of retired words itself, and pages that are generated from other files.
const EXEMPT: [&str; 2] = ["xtask/src/tidy/", "docs/reference/"];
const LINES_MAX: usize = 800;
/// Files that are written by a generator and may have any length.
const GENERATED: [&str; 1] = ["sdk/python/src/dormouse/types.py"];

/// A file of the repository.
struct File {
    /// The path relative to the repository.
    path: String,
    text: String,
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, of)| of == extension)
    }
}

/// Checks everything and prints each violation. With `base`, checks the subjects of commits since
/// then, too. With `DORM_UPDATE=1`, writes the numbers that have fallen.
pub(crate) fn check(root: &Path, base: Option<&str>) -> Result<()> {
    let files = files(root)?;
    let mut wrong = Vec::new();
    lengths(&files, &mut wrong);
    comments::check(&files, &mut wrong);
    links::check(root, &files, &mut wrong);
    decisions::check(&files, &mut wrong);
    glossary::check(&files, &mut wrong);
    if let Some(base) = base {
        subjects::check(root, base, &mut wrong)?;
    }
    let (found, notes) = count(&files);
    let path = root.join(RATCHET);
    let allowed = match fs::read_to_string(&path) {
        Ok(text) => Some(Ratchet::parse(&text).with_context(|| format!("read {RATCHET}"))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("read {RATCHET}")),
    };
    if std::env::var_os("DORM_UPDATE").is_some() {
        found.check_totals(allowed.as_ref())?;
        fs::write(&path, found.render()).with_context(|| format!("write {RATCHET}"))?;
    } else {
        found.compare(&allowed.unwrap_or_default(), &notes, &mut wrong);
    }
    if !wrong.is_empty() {
        for line in &wrong {
            eprintln!("tidy: {line}");
        }
        bail!("{} violations of the rules for text", wrong.len());
    }
    let totals = found.totals();
    println!(
        "tidy: {} files, {} retired words and {} long functions left",
        files.len(),
        totals.words,
        totals.functions
    );
    Ok(())
}

/// The files that git tracks or would track.
fn files(root: &Path) -> Result<Vec<File>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().context("run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let mut files = Vec::new();
    for path in String::from_utf8(output.stdout).context("a path is not UTF-8")?.split_terminator('\0') {
        let is_text = path.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension));
        // A deleted file is listed until its deletion is committed.
        if is_text && root.join(path).is_file() {
            let text = fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))?;
            files.push(File { path: path.to_owned(), text });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup_by(|one, other| one.path == other.path);
    Ok(files)
}

fn lengths(files: &[File], wrong: &mut Vec<String>) {
    let is_checked = |file: &&File| {
        let is_code = ["rs", "py", "sh"].iter().any(|of| file.has_extension(of));
        is_code && !GENERATED.contains(&file.path.as_str())
    };
    for file in files.iter().filter(is_checked) {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{} has {lines} lines, over the limit of {LINES_MAX}", file.path));
        }
    }
}

/// The retired words and long functions of each file: their counts, and a note on each.
fn count(files: &[File]) -> (Ratchet, Vec<(String, String)>) {
    let (mut ratchet, mut notes) = (Ratchet::default(), Vec::new());
    for file in files.iter().filter(|file| !EXEMPT.iter().any(|path| file.path.starts_with(path))) {
        let words = words::find(file);
        let functions = if file.has_extension("rs") { functions::long(&file.text) } else { Vec::new() };
        ratchet.set(&file.path, Counts { words: words.len(), functions: functions.len() });
        notes.extend(words.into_iter().chain(functions).map(|note| (file.path.clone(), note)));
    }
    (ratchet, notes)
}
