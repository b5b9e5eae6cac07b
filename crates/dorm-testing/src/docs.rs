//! The code blocks of the documentation, for tests that check and run them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A code block of a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// The page, from the root of the repository.
    pub page: String,
    /// The number of its first line inside the fence.
    pub line: usize,
    /// The word after the fence, such as `sh`.
    pub language: String,
    /// Its text.
    pub text: String,
}

/// A command, or something that stands where one could.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The page and the line.
    pub place: String,
    /// Its words, as a shell would split them, without comments.
    pub words: Vec<String>,
}

/// Returns the pages that people write: README, CONTRIBUTING, and all of docs/ but decisions.
///
/// # Errors
/// When a directory cannot be read.
pub fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for directory in ["docs", "docs/concepts", "docs/reference"] {
        let directory = root.join(directory);
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Returns the code blocks of a page.
///
/// # Errors
/// When it cannot be read.
pub fn blocks(root: &Path, page: &Path) -> Result<Vec<Block>> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let name = page.strip_prefix(root).unwrap_or(page).display().to_string();
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if is_inside => is_inside = false,
            Some(language) => {
                is_inside = true;
                let language = language.trim().to_owned();
                blocks.push(Block { page: name.clone(), line: number + 2, language, text: String::new() });
            }
            None if is_inside => {
                if let Some(block) = blocks.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            None => {}
        }
    }
    Ok(blocks)
}

/// Returns the commands of a block in `sh`: those of a line that are joined by `&&` or `|` are
/// several.
///
/// # Errors
/// When a shell could not split a line into words.
pub fn commands(block: &Block) -> Result<Vec<Command>> {
    let mut commands = Vec::new();
    for (number, line) in block.text.lines().enumerate() {
        let place = format!("{}:{}", block.page, block.line + number);
        let words = shlex::split(line).with_context(|| format!("{place}: quotes are not closed: {line}"))?;
        for words in words.split(|word| ["&&", "&", "|"].contains(&word.as_str())) {
            let words: Vec<_> = words.to_vec();
            if !words.is_empty() {
                commands.push(Command { place: place.clone(), words });
            }
        }
    }
    Ok(commands)
}

/// Returns the code spans of a page's prose, each with its place.
///
/// # Errors
/// When the page cannot be read.
pub fn spans(root: &Path, page: &Path) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let name = page.strip_prefix(root).unwrap_or(page).display();
    let mut spans = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_inside = !is_inside;
        } else if !is_inside {
            let inside = line.split('`').skip(1).step_by(2);
            spans.extend(inside.map(|span| (format!("{name}:{}", number + 1), span.to_owned())));
        }
    }
    Ok(spans)
}

/// How a test follows a page.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The page, from the root of the repository.
    pub page: &'static str,
    /// Lines to run before those of the page.
    pub before: &'static [&'static str],
    /// Parts of lines, and what a reader of this host writes instead.
    pub instead: &'static [(&'static str, &'static str)],
    /// Beginnings of lines that are not run, each with the reason.
    pub not_run: &'static [(&'static str, &'static str)],
}

/// A line for a shell that has read [`FUNCTIONS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The page and the line.
    pub place: String,
    /// The command.
    pub text: String,
}

/// The reason for commands that set-up has run before the test.
pub const INSTALLS: &str = "set-up has done it before the tests";
/// The reason for commands that start a daemon.
pub const STARTS: &str = "the daemon of the test runs already";
/// The reason for interactive commands.
pub const TERMINAL: &str = "needs a terminal: tests/cli/shell.rs";
/// The reason for commands that use a registry.
pub const REGISTRY: &str = "needs a registry: tests/daemon/registry.rs";

/// The quick start.
pub const QUICK_START: Reading = Reading {
    page: "docs/quick-start.md",
    before: &[],
    instead: &[("apt-get -y upgrade", "apt-get --version"), ("events -f", "events"), ("/backup/", "$HERE/")],
    not_run: &[
        ("cargo xtask", INSTALLS),
        ("target/release/dorm serve", STARTS),
        ("dorm() {", STARTS),
        ("dorm doctor", "its exit code is that of this host: tests/cli/doctor.rs"),
        ("dorm image import", INSTALLS),
        ("dorm sbx shell", TERMINAL),
        ("dorm sbx checkpoint push", REGISTRY),
        ("dorm sbx checkpoint pull", REGISTRY),
        ("dorm sbx checkpoint import", "needs another host: tests/daemon/transfer.rs"),
        ("dorm repair", "needs a stopped daemon: tests/daemon/records.rs"),
    ],
};

/// Functions of the shell that runs lines: `dorm`, which is the program at `$DORM`, and those that
/// find the id for which a page has `ID`.
pub const FUNCTIONS: &str = r#"
dorm() { "$DORM" "$@"; }
newest_snapshot() { dorm sbx checkpoint ls -o json | python3 -c '
import json, sys
files = [one for one in json.load(sys.stdin) if one["kind"] == "filesystem"]
print(max(files, key=lambda one: one["created_at"])["id"])'; }
source_that_is() { { dorm sbx checkpoint ls -o json; dorm sbx ls --all -o json; } | python3 -c '
import json, sys
text = sys.stdin.read()
snapshots, end = json.JSONDecoder().raw_decode(text)
sources = {one["source"] for one in snapshots}
sandboxes = json.loads(text[end:])
print(next(one["id"] for one in sandboxes if one["state"] == sys.argv[1] and one["id"] in sources))' "$1"; }
newest_build() { dorm build ls -o json | python3 -c '
import json, sys
print(max(json.load(sys.stdin), key=lambda one: one["created_at"])["id"])'; }
first_key() { dorm key ls -o json | python3 -c '
import json, sys
print(json.load(sys.stdin)[0]["id"])'; }
"#;

impl Reading {
    /// Returns the lines to run, in order.
    ///
    /// # Errors
    /// When the page cannot be read, or no longer has a line that [`Reading`] speaks of.
    pub fn lines(&self, root: &Path) -> Result<Vec<Line>> {
        let mut used = Vec::new();
        let before = self.before.iter().map(|text| Line { place: "before".to_owned(), text: (*text).to_owned() });
        let mut lines: Vec<_> = before.collect();
        for block in blocks(root, &root.join(self.page))?.iter().filter(|block| block.language == "sh") {
            for (number, text) in block.text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
                if let Some((beginning, _)) = self.not_run.iter().find(|(known, _)| text.starts_with(known)) {
                    used.push(*beginning);
                    continue;
                }
                let place = format!("{}:{}", block.page, block.line + number);
                lines.push(Line { place, text: self.as_here(text, &mut used) });
            }
        }
        let missing = self.not_run.iter().chain(self.instead).find(|(known, _)| !used.contains(known));
        match missing {
            Some((known, _)) => bail!("{} no longer has '{known}'", self.page),
            None => Ok(lines),
        }
    }

    /// Returns the line as a reader of this host writes it.
    fn as_here(&self, line: &str, used: &mut Vec<&'static str>) -> String {
        let mut line = line.split(" #").next().unwrap_or(line).to_owned();
        for (part, replacement) in self.instead {
            if !line.contains(part) {
                continue;
            }
            used.push(part);
            line = line.replace(part, replacement);
        }
        let id = match &line {
            line if line.contains("restart") => "\"$(source_that_is terminated)\"",
            line if line.contains("--sandbox") => "\"$(source_that_is running)\"",
            line if line.contains("key rm") => "\"$(first_key)\"",
            line if line.contains("dorm build") => "\"$(newest_build)\"",
            _ => "\"$(newest_snapshot)\"",
        };
        let words = line.split(' ').map(|word| if matches!(word, "ID" | "SNAPSHOT") { id } else { word });
        words.collect::<Vec<_>>().join(" ")
    }
}
