//! Words and phrases that are retired, and words with which no sentence may begin.
//!
//! A pattern is one or more words; `|` separates forms of a word. Words are found in prose and as
//! parts of identifiers: `hull` is in `SpareHull` and `spare_hull`, not in `hullabaloo`. A retired
//! word that has another, ordinary meaning (`pool`, `point`, `seen`, `machine`) is not in the
//! table.

use super::File;
use super::prose::{self, Block, Kind};

/// Retired words, and the terms of the glossary to use instead.
const RETIRED: &[(&str, &[&str])] = &[
    ("hull|hulls", &["container"]),
    ("spare|spares", &["warm container"]),
    ("shelf|shelves", &["warm pool"]),
    ("capture|captures|captured|capturing", &["saved state", "save", "checkpoint"]),
    ("artefact|artefacts", &["saved state"]),
    ("dress|dressed|dresses|lay|lays|laid", &["layer"]),
    ("relief|breathe|breathes|greediest", &["memory pressure", "OOM victim"]),
    ("ladder|ladders|rung|rungs|fate|fates", &["retention policy", "rule"]),
    ("deed|deeds|happening|happenings", &["operation", "event", "action"]),
    ("go|goes|going|went|gone back", &["rewind"]),
    ("take|takes|taking|took|taken back", &["rewind", "revoke"]),
    ("go|goes|going|went|gone on", &["resume", "continue"]),
    ("all or none", &["roll back"]),
    ("hungry", &["starved"]),
    ("tell|tells|telling|told history|histories", &["simulation run"]),
    ("history|histories told", &["simulation run"]),
    ("story|stories", &["scenario"]),
    ("voice|voices", &["reporter"]),
    ("dorm rewrite", &["DORM_UPDATE"]),
];

/// The same for identifiers alone: in prose these words are ordinary ones.
const RETIRED_NAMES: &[(&str, &[&str])] = &[("keeping", &["retention"])];

/// Retired phrases, and what to use instead.
const PHRASES: &[(&str, &str)] = &[
    ("is to be", "must be, or the plain verb"),
    ("by themselves", "automatically"),
    ("for the sake of", "for"),
    ("are told", "a concrete subject and an active verb"),
    ("cannot be meant", "usage error"),
    ("may not be accessed", "permission denied"),
];

/// Words with which no sentence begins, and what to do instead.
const OPENERS: &[(&str, &str)] = &[
    ("whoever|what|which", "begin with a concrete subject"),
    ("nobody|somebody", "begin with a concrete subject"),
    ("of a|two", "begin with a concrete subject, or 'if'"),
];

/// The terms that replace retired words.
pub(super) fn replacements() -> impl Iterator<Item = &'static str> {
    RETIRED.iter().chain(RETIRED_NAMES).flat_map(|(_, terms)| *terms).copied()
}

/// A note on each retired word of a file.
pub(super) fn find(file: &File) -> Vec<String> {
    let is_program = ["rs", "py", "sh"].iter().any(|of| file.has_extension(of));
    let mut notes = Vec::new();
    for block in prose::blocks(file) {
        let words = words(&block.text);
        let strings = if block.kind == Kind::Code { prose::strings(&block.text) } else { Vec::new() };
        let is_quoted = |at: usize| strings.iter().any(|(start, end)| (*start..*end).contains(&at));
        for (index, word) in words.iter().enumerate() {
            let mut note = |pattern: &str, instead: &str| {
                if let Some(length) = matching(pattern, &words[index..]) {
                    let last = &words[index + length - 1];
                    let found = &block.text[word.start..last.start + last.text.len()];
                    notes.push(format!("{}: '{found}': {instead}", block.line(word.start)));
                }
            };
            RETIRED.iter().for_each(|(pattern, terms)| note(pattern, &terms.join(", or ")));
            PHRASES.iter().for_each(|(pattern, instead)| note(pattern, instead));
            if is_program && block.kind == Kind::Code && !is_quoted(word.start) {
                RETIRED_NAMES.iter().for_each(|(pattern, terms)| note(pattern, &terms.join(", or ")));
            }
            if begins_sentence(&block, word, &strings) {
                OPENERS.iter().for_each(|(pattern, instead)| note(pattern, instead));
            }
        }
    }
    notes
}

/// A word of a text or an identifier.
struct Word<'a> {
    text: &'a str,
    start: usize,
    /// What stands between it and the word before.
    gap: &'a str,
}

/// The words of a text. Identifiers are split where an underscore or a capital letter begins the
/// next word.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut start = None;
    let mut end_of_last = 0;
    let mut push = |from: usize, to: usize| {
        words.push(Word { text: &text[from..to], start: from, gap: &text[end_of_last..from] });
        end_of_last = to;
    };
    let mut before = ' ';
    for (at, symbol) in text.char_indices() {
        let is_hump = symbol.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        if let Some(from) = start.filter(|_| is_hump || !symbol.is_alphanumeric()) {
            push(from, at);
            start = None;
        }
        if symbol.is_alphanumeric() && start.is_none() {
            start = Some(at);
        }
        before = symbol;
    }
    if let Some(from) = start {
        push(from, text.len());
    }
    words
}

/// How many words the pattern has, if `words` begin with it.
fn matching(pattern: &str, words: &[Word<'_>]) -> Option<usize> {
    let mut count = 0;
    for forms in pattern.split(' ') {
        let word = words.get(count)?;
        let is_joined = count == 0 || matches!(word.gap, "" | " " | "-" | "_");
        if !is_joined || !forms.split('|').any(|form| word.text.eq_ignore_ascii_case(form)) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// Whether a sentence of prose, or a string in code, begins with `word`.
fn begins_sentence(block: &Block, word: &Word<'_>, strings: &[(usize, usize)]) -> bool {
    if !word.text.starts_with(char::is_uppercase) {
        return false;
    }
    match block.kind {
        Kind::Title => false,
        Kind::Code => strings.iter().any(|(start, _)| *start == word.start),
        Kind::Prose => {
            let before = &block.text[..word.start];
            let before = before.trim_end_matches(['"', '(', '*', '_', '`']);
            let is_apart = before.is_empty() || before.ends_with(' ');
            let before = before.trim_end();
            is_apart && (matches!(before, "" | "-" | "*" | ">") || before.ends_with(['.', '?', '!']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str, text: &str) -> Vec<String> {
        super::find(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_retired_word_is_found_in_prose_identifiers_and_strings_with_what_to_use() {
        assert_eq!(find("a.rs", "// one\nlet spare_hull = 1;"), ["2: 'spare': warm container", "2: 'hull': container"]);
        for text in ["struct HullDrop;", "let a = \"the hulls\";", "// Hull.", "use dorm::hull::Hulls;"] {
            assert!(!find("a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(find("a.rs", "// hullabaloo, address, storybook"), Vec::<String>::new());
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_separators() {
        assert_eq!(find("a.rs", "/// It is for the\n/// sake of speed.\n"), ["1: 'for the sake of': for"]);
        assert_eq!(find("a.toml", "roll = \"all-or-none\"\n"), ["1: 'all-or-none': roll back"]);
        assert_eq!(find("a.sh", "DORM_REWRITE=1 cargo test"), ["1: 'DORM_REWRITE': DORM_UPDATE"]);
        assert_eq!(find("a.md", "Let it go, on time."), Vec::<String>::new());
    }

    #[test]
    fn a_word_that_is_retired_as_a_name_may_stand_in_prose() {
        assert_eq!(find("a.rs", "mod keeping;"), ["1: 'keeping': retention"]);
        assert_eq!(find("a.rs", "// keeping the lock\nlet a = \"keeping it\";"), Vec::<String>::new());
        assert_eq!(find("a.md", "`keeping`"), Vec::<String>::new());
    }

    #[test]
    fn no_sentence_begins_with_an_opener_but_other_places_may_have_its_word() {
        let instead = "begin with a concrete subject";
        assert_eq!(find("a.rs", "/// Done. What is left\n/// waits."), [format!("1: 'What': {instead}")]);
        assert_eq!(find("a.md", "- **Nobody** waits.\n"), [format!("1: 'Nobody': {instead}")]);
        assert_eq!(find("a.rs", "let a = \"Which one\";"), [format!("1: 'Which': {instead}")]);
        assert_eq!(find("a.md", "Of two callers, one waits.").len(), 1);
        for text in ["# What to watch", "| What | Which |", "He asks What. Of course, what else?"] {
            assert_eq!(find("a.md", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(find("a.rs", "enum What { Which }"), Vec::<String>::new());
    }
}
