//! The programs of the README are the examples, which are run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

/// The blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut parts = page.split("\n```");
    parts.next();
    parts.step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

#[test]
fn the_programs_of_the_readme_are_the_examples() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("README.md")).unwrap();
    let mut examples = BTreeMap::new();
    for entry in std::fs::read_dir(here.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let program = std::fs::read_to_string(&path).unwrap();
            let output = std::fs::read_to_string(path.with_extension("out")).unwrap();
            // A program begins with a line that says what it shows.
            let program = program.split_once("\n\n").unwrap().1.trim_end().to_owned();
            examples.insert(path, (program, output.trim_end().to_owned()));
        }
    }
    let blocks = blocks(&page);
    for (path, (program, output)) in &examples {
        let at = blocks.iter().position(|(kind, block)| *kind == "rust,no_run" && block == program);
        let at = at.unwrap_or_else(|| panic!("the README does not have {} as it is", path.display()));
        assert_eq!(blocks[at + 1], ("text", output.as_str()), "{}", path.display());
    }
    let programs = blocks.iter().filter(|(kind, _)| kind.starts_with("rust")).count();
    assert_eq!(programs, examples.len(), "a program of the README is no example");
}
