//! Relative links of Markdown files name files that are there, and headings that these have.

use std::path::{Component, Path, PathBuf};

use super::File;

pub(super) fn check(root: &Path, files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (line, target) in links(&file.text) {
            if let Some(reason) = refuse(root, file, files, target) {
                wrong.push(format!("{}:{line}: the link '{target}' {reason}", file.path));
            }
        }
    }
}

/// Each link with its line, without those in blocks of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut links, mut is_code) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for (start, _) in line.match_indices("](").filter(|(start, _)| !is_in_code_span(line, *start)) {
            let target = &line[start + 2..];
            if let Some(end) = target.find([')', ' ']) {
                links.push((at + 1, &target[..end]));
            }
        }
        // [name]: target
        if line.starts_with('[')
            && let Some((_, target)) = line.split_once("]: ")
        {
            links.push((at + 1, target.split_whitespace().next().unwrap_or_default()));
        }
    }
    links
}

fn is_in_code_span(line: &str, at: usize) -> bool {
    line[..at].matches('`').count() % 2 == 1
}

fn refuse(root: &Path, file: &File, files: &[File], target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let to = if path.is_empty() {
        file.path.clone()
    } else {
        let directory = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        let Some(to) = inside(&directory.join(path)) else { return Some("leaves the repository".to_owned()) };
        if !root.join(&to).exists() {
            return Some(format!("names {}, which does not exist", to.display()));
        }
        to.to_string_lossy().into_owned()
    };
    let anchor = anchor?;
    let to = files.iter().find(|file| file.path == to && file.has_extension("md"))?;
    let has = headings(&to.text).any(|heading| heading == anchor);
    (!has).then(|| format!("names a heading that {} does not have", to.path))
}

/// The path without `..`, unless it leads out.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => plain.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// The anchors that forges make of headings.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|symbol| symbol.is_alphanumeric() || " -_".contains(*symbol));
        kept.map(|symbol| if symbol == ' ' { '-' } else { symbol }).collect()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_and_headings_that_are_not_there_are_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("docs/a.md"), "").unwrap();
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let good = "[a](docs/a.md), [b](docs/a.md#a-full-disk-of-4-gib), [web](https://example.com/x), [self](#top), `[x](…)`\n\
                    ```sh\n[code](nowhere)\n```\n# Top\n[c]: docs/a.md\n[d](docs)";
        let target = file("docs/a.md", "# Title\n\n## A full disk, of 4 GiB\n[up](../README.md)");
        std::fs::write(root.path().join("README.md"), "").unwrap();
        let check = |text: &str| {
            let mut wrong = Vec::new();
            let files = [file("README.md", text), file("docs/a.md", &target.text)];
            super::check(root.path(), &files, &mut wrong);
            wrong
        };
        assert_eq!(check(good), Vec::<String>::new());
        let wrong = check("[a](docs/b.md) [b](docs/a.md#b)\n[c]: gone.md\n[d](../out.md) [e](#f)");
        assert_eq!(wrong.len(), 5, "{wrong:#?}");
        assert_eq!(wrong[0], "README.md:1: the link 'docs/b.md' names docs/b.md, which does not exist");
        assert!(wrong[2].starts_with("README.md:2: "), "{wrong:#?}");
    }
}
