//! The files and functions that the diagrams of a page name exist.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The crate of a file whose path does not begin with one.
const CRATE: &str = "dorm-service";

/// Adds a line to `wrong` for each file or function in a `text` block of `page` that does not
/// exist.
pub(super) fn check(root: &Path, page: &str, wrong: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("read {page}"))?;
    for (file, function) in places(&text) {
        let path = root.join(source(file));
        let Ok(code) = std::fs::read_to_string(&path) else {
            wrong.push(format!("a diagram in {page} names {file}, which does not exist"));
            continue;
        };
        if let Some(name) = function
            && ![format!("fn {name}("), format!("fn {name}<")].iter().any(|start| code.contains(start))
        {
            wrong.push(format!("a diagram in {page} names {file}:{name}, which does not exist"));
        }
    }
    Ok(())
}

/// The files in the `text` blocks of a page, each with the function that is named with it.
fn places(text: &str) -> Vec<(&str, Option<&str>)> {
    let blocks = text.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let words = blocks.flat_map(str::split_whitespace).map(|word| word.trim_end_matches(','));
    words
        .filter_map(|word| match word.split_once(':') {
            Some((file, function)) if file.ends_with(".rs") => Some((file, Some(function))),
            None if word.ends_with(".rs") => Some((word, None)),
            _ => None,
        })
        .collect()
}

/// The path of a source file, which may begin with the name of its crate.
fn source(file: &str) -> PathBuf {
    let (package, inside) = match file.split_once('/') {
        Some((package, inside)) if package.starts_with("dorm-") => (package, inside),
        _ => (CRATE, file),
    };
    Path::new("crates").join(package).join("src").join(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_functions_of_text_blocks_are_found() {
        let page = "a.rs\n```text\nb.rs:go ─► Message::Go ─► c/d.rs, then\n```\ne.rs\n```text\nf.rs:is\n```\n";
        assert_eq!(places(page), [("b.rs", Some("go")), ("c/d.rs", None), ("f.rs", Some("is"))]);
    }

    #[test]
    fn a_file_is_in_its_crate_or_in_the_service() {
        assert_eq!(source("dorm-api/handlers/exec.rs"), Path::new("crates/dorm-api/src/handlers/exec.rs"));
        assert_eq!(source("ops/fork.rs"), Path::new("crates/dorm-service/src/ops/fork.rs"));
    }
}
