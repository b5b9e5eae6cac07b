//! Functions that are too long. The code is formatted, so a function ends at the brace below its
//! first character.

const LINES_MAX: usize = 70;

/// A note on each function of more than [`LINES_MAX`] lines.
pub(super) fn long(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut notes = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let length = length(&lines[at..]);
        if length > LINES_MAX {
            notes.push(format!("{}: the function {name} has {length} lines, over the limit of {LINES_MAX}", at + 1));
        }
    }
    notes
}

/// The name of the function that begins in `line`.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_qualifier = |word: &str| {
        word.starts_with("pub") || matches!(word, "async" | "const" | "unsafe" | "extern" | "\"C\"" | "default")
    };
    // `pub(in a::b)` is the only qualifier with a space.
    let is_item = before.replace("pub(in ", "pub(").split_whitespace().all(is_qualifier);
    let end = after.find(|symbol: char| !symbol.is_alphanumeric() && symbol != '_').unwrap_or(after.len());
    (is_item && end > 0).then(|| &after[..end])
}

/// How many lines the function has that begins in the first of `lines`.
fn length(lines: &[&str]) -> usize {
    let Some(first) = lines.first() else { return 0 };
    let indent = first.len() - first.trim_start().len();
    // The signature ends with its body's brace, with a whole body, or with a semicolon in a trait.
    let signature = lines.iter().position(|line| line.ends_with(['{', '}', ';'])).unwrap_or(0);
    if !lines[signature].ends_with('{') {
        return signature + 1;
    }
    let ends = |line: &&str| line.len() > indent && line.trim() == "}" && line.find('}') == Some(indent);
    lines.iter().position(ends).map_or(lines.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(indent: &str, head: &str, body: usize) -> String {
        let body = format!("{indent}    if a {{\n{indent}    }}\n").repeat(body / 2);
        format!("{indent}{head} {{\n{body}{indent}}}\n")
    }

    #[test]
    fn a_function_of_seventy_lines_is_short_enough_and_one_of_more_is_named_with_its_line() {
        assert_eq!(long(&function("", "fn short()", 68)), Vec::<String>::new());
        let text = format!("\n{}{}", function("", "fn short()", 10), function("", "pub(crate) async fn long()", 70));
        assert_eq!(long(&text), ["14: the function long has 72 lines, over the limit of 70"]);
    }

    #[test]
    fn methods_and_signatures_of_several_lines_are_measured_whole() {
        let text = format!("impl A {{\n{}}}\n", function("    ", "pub(in crate::a) const fn long()", 70));
        assert_eq!(long(&text).len(), 1);
        let text = function("", "fn long(\n    a: u8,\n) -> u8\nwhere\n    A: B,\n", 68);
        assert_eq!(long(&text).len(), 1, "{text}");
    }

    #[test]
    fn declarations_one_line_bodies_and_types_of_functions_do_not_count_what_follows() {
        let filler = "// a line\n".repeat(80);
        for head in
            ["    fn a(&self);", "fn a() {}", "fn a() -> u8 { 1 }", "type A = fn (u8) -> u8;", "let a: fn () = b;"]
        {
            assert_eq!(long(&format!("{head}\n{filler}}}\n")), Vec::<String>::new(), "{head}");
        }
    }
}
