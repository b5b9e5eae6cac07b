//! The code blocks of the documentation, for tests that check and run them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

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
    for directory in ["docs", "docs/reference"] {
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

/// Returns the commands of a block in `sh`: those of a line that are joined by `&&` are several.
///
/// # Errors
/// When a shell could not split a line into words.
pub fn commands(block: &Block) -> Result<Vec<Command>> {
    let mut commands = Vec::new();
    for (number, line) in block.text.lines().enumerate() {
        let place = format!("{}:{}", block.page, block.line + number);
        let words = shlex::split(line).with_context(|| format!("{place}: quotes are not closed: {line}"))?;
        for words in words.split(|word| word == "&&" || word == "&") {
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
