//! The paths in a file's text that lead to the root of its crate, and what the root imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy;

/// The code of a file without its comments, and without the tests at its end.
fn code(text: &str) -> String {
    let mut lines = Vec::new();
    let mut rest = text.lines().map(tidy::code).peekable();
    while let Some(line) = rest.next() {
        if line == "#[cfg(test)]" {
            let attributes: Vec<_> = std::iter::from_fn(|| rest.next_if(|next| next.starts_with("#["))).collect();
            if rest.peek().is_some_and(|next| next.starts_with("mod ") && next.trim_end().ends_with('{')) {
                break;
            }
            lines.extend(attributes);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// The names of the crate's root in the paths of a file whose module is `depth` below the root.
pub(super) fn used(text: &str, depth: usize) -> BTreeSet<String> {
    let code = code(text);
    let inline = inline_modules(&code);
    let mut names = BTreeSet::new();
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_inside = code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'));
            if is_inside {
                continue;
            }
            let below = depth + inline.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
            names.extend(paths(&code[at..]).iter().filter_map(|path| from_root(path, below)).map(str::to_owned));
        }
    }
    names
}

/// The first name below the root of a path in a module that is `depth` below it; `None` if the path
/// does not leave a module below the root.
fn from_root<'p>(path: &[&'p str], mut depth: usize) -> Option<&'p str> {
    for segment in path {
        match *segment {
            "crate" => depth = 0,
            "self" => {}
            "super" => depth = depth.checked_sub(1)?,
            name => return (depth == 0).then_some(name),
        }
    }
    None
}

/// The names that the root of a crate imports or re-exports, each with the first segment of its
/// path.
pub(super) fn imports(text: &str) -> BTreeMap<String, String> {
    let code = code(text);
    let mut imports = BTreeMap::new();
    for (at, word) in code.match_indices("use ") {
        if code[..at].ends_with(|c: char| !c.is_whitespace()) {
            continue;
        }
        for path in paths(&code[at + word.len()..]) {
            if let (Some(first), Some(name)) = (from_root(&path, 0), path.last()) {
                imports.insert((*name).to_owned(), first.to_owned());
            }
        }
    }
    imports
}

/// The paths with which `text` begins: one, or those of a list. The last segment of a renamed one
/// is its new name.
fn paths(text: &str) -> Vec<Vec<&str>> {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        return entries(list).into_iter().flat_map(paths).collect();
    }
    if text.starts_with('*') {
        return vec![vec!["*"]];
    }
    let (name, rest) = first_name(text);
    if name.is_empty() {
        return Vec::new();
    }
    if let Some(renamed) = rest.strip_prefix(" as ") {
        return vec![vec![name, first_name(renamed).0]];
    }
    let below = rest.strip_prefix("::").map(paths).unwrap_or_default();
    if below.is_empty() {
        return vec![vec![name]];
    }
    below.into_iter().map(|path| std::iter::once(name).chain(path).collect()).collect()
}

/// The name with which `text` begins, and the rest.
fn first_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

/// The entries of a list, up to the brace that closes it.
fn entries(list: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut entries = Vec::new();
    for (at, symbol) in list.char_indices() {
        match (symbol, depth) {
            ('{', _) => depth += 1,
            (',' | '}', 0) => {
                entries.push(&list[start..at]);
                start = at + 1;
            }
            ('}', _) => depth -= 1,
            _ => {}
        }
        if symbol == '}' && start == at + 1 {
            break;
        }
    }
    entries
}

/// Where the modules that are written out in `code` begin and end.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let mut modules = Vec::new();
    for (at, word) in code.match_indices("mod ") {
        let (_, rest) = first_name(&code[at + word.len()..]);
        if code[..at].ends_with(|c: char| !c.is_whitespace()) || !rest.starts_with(" {") {
            continue;
        }
        let from = code.len() - rest.len();
        let mut depth = 0_usize;
        let end = rest.char_indices().find(|(_, symbol)| {
            match symbol {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => return false,
            }
            depth == 0
        });
        modules.push((from, end.map_or(code.len(), |(length, _)| from + length)));
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn comments_and_tests_use_nothing() {
        let text = "use crate::run::Run; // crate::boot\nlet a = crate::error::chain(&e);\n#[cfg(test)]\nmod tests {\n use crate::world;\n}";
        assert_eq!(used(text, 1), names(["error", "run"]));
        let text = "use crate::run;\n#[cfg(test)]\n#[allow(clippy::unwrap_used)]\nmod tests {\n use crate::world;\n}";
        assert_eq!(used(text, 1), names(["run"]));
        assert_eq!(used("#[cfg(test)]\nmod tests;\nuse crate::run;", 1), names(["run"]));
    }

    #[test]
    fn every_name_of_a_list_is_used() {
        let text = "use crate::{\n    gate, names::{self, relay::Relay},\n    ports::Port as _,\n};\nuse crate::{one};\nlet a = {two};";
        assert_eq!(used(text, 1), names(["gate", "names", "one", "ports"]));
    }

    #[test]
    fn super_reaches_the_root_from_as_many_modules_below_it() {
        let text = "use super::error::Error;\nuse super::{names, gate::{self, Gate}};\nuse super::super::lost::Lost;";
        assert_eq!(used(text, 1), names(["error", "gate", "names"]));
        assert_eq!(used(text, 2), names(["lost"]));
        assert_eq!(used("fn of(x: self::super::Port) {}", 1), names(["Port"]));
        let text = "mod inner {\n    use super::own;\n    use super::super::other;\n}\nuse super::outer;";
        assert_eq!(used(text, 1), names(["other", "outer"]));
    }
}
