//! The glossary has each term that replaces a retired word, each term that the concepts introduce,
//! and the other terms of the vocabulary.

use std::collections::BTreeSet;

use super::{File, words};

const GLOSSARY: &str = "docs/concepts/glossary.md";
const CONCEPTS: &str = "docs/concepts.md";

/// The terms that must be explained, although they neither replace a retired word nor are
/// introduced as a concept.
const TERMS: &[&str] = &[
    "actor",
    "adopt",
    "attachment",
    "checker",
    "clone",
    "committed",
    "container slot",
    "draft",
    "effect",
    "engine",
    "environment",
    "fork",
    "initiator",
    "lease",
    "mount point",
    "observation",
    "promote",
    "restart",
    "restore",
    "sandbox pool",
    "start",
    "step",
    "storage",
];

pub(super) fn check(files: &[File], wrong: &mut Vec<String>) {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let (Some(glossary), Some(concepts)) = (text(GLOSSARY), text(CONCEPTS)) else {
        wrong.push(format!("{GLOSSARY} or {CONCEPTS} does not exist"));
        return;
    };
    let terms = terms(glossary);
    for pair in terms.windows(2) {
        if key(pair[0]) >= key(pair[1]) {
            wrong.push(format!("{GLOSSARY}: '{}' should stand once, and before '{}'", pair[1], pair[0]));
        }
    }
    let known: BTreeSet<String> = terms.into_iter().map(key).collect();
    let required = words::replacements()
        .map(|term| (term, "which replaces a retired word"))
        .chain(bold(concepts).map(|term| (term, "which docs/concepts.md introduces")))
        .chain(TERMS.iter().map(|term| (*term, "which is a term of the vocabulary")));
    for (term, reason) in required {
        if !known.contains(&key(term)) {
            wrong.push(format!("{GLOSSARY} does not explain '{term}', {reason}"));
        }
    }
}

/// A term as it is compared: without the marks of code, in lower case.
fn key(term: &str) -> String {
    term.trim_matches('`').to_lowercase()
}

/// The terms of the glossary: the first cell of each row of its table that has a meaning.
fn terms(glossary: &str) -> Vec<&str> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    rows.filter(|(_, meaning)| !meaning.trim().is_empty()).map(|(term, _)| term.trim()).skip(1).collect()
}

/// The words in bold.
fn bold(text: &str) -> impl Iterator<Item = &str> {
    text.split("**").skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Glossary\n\n| term | meaning |\n|---|---|\n";

    fn check(glossary: &str, concepts: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut wrong = Vec::new();
        super::check(&[file(GLOSSARY, glossary), file(CONCEPTS, concepts)], &mut wrong);
        wrong
    }

    #[test]
    fn a_row_without_a_meaning_explains_no_term() {
        assert_eq!(terms(&format!("{HEAD}| `A` | one |\n| b |  |\n| C d | two |\n\n| text")), ["`A`", "C d"]);
    }

    #[test]
    fn every_replacement_concept_and_other_term_is_required() {
        let wrong = check(HEAD, "A **gizmo** is new.");
        for (term, reason) in [
            ("warm container", "which replaces a retired word"),
            ("retention", "which replaces a retired word"),
            ("gizmo", "which docs/concepts.md introduces"),
            ("mount point", "which is a term of the vocabulary"),
        ] {
            assert!(wrong.contains(&format!("{GLOSSARY} does not explain '{term}', {reason}")), "{term}: {wrong:?}");
        }
        let explained =
            check(&format!("{HEAD}| gizmo | a thing |\n| Warm container | a container |\n"), "A **gizmo**.");
        assert!(!explained.iter().any(|line| line.contains("'gizmo'") || line.contains("'warm container'")));
    }

    #[test]
    fn terms_stand_once_and_in_order() {
        let order = |rows: &str| {
            check(&format!("{HEAD}{rows}"), "").into_iter().filter(|line| line.contains("should stand once")).count()
        };
        assert_eq!(order("| `a` | one |\n| B | two |\n| c | three |\n"), 0);
        assert_eq!(order("| b | two |\n| a | one |\n"), 1);
        assert_eq!(order("| a | one |\n| a | two |\n"), 1);
    }

    #[test]
    fn a_missing_glossary_is_reported() {
        let mut wrong = Vec::new();
        super::check(&[], &mut wrong);
        assert_eq!(wrong.len(), 1);
    }
}
