//! The width of comments.

use super::File;

/// The largest width of a comment line, with its indentation.
const WIDTH_MAX: usize = 100;

/// Adds each comment line that is too wide. A line that cannot be broken there, such as a link or a
/// row of a table, may be wider.
pub(super) fn check(files: &[File], wrong: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        for line in too_wide(&file.text) {
            wrong.push(format!("{}:{line}: the comment is wider than {WIDTH_MAX} columns", file.path));
        }
    }
}

/// The numbers of the comment lines that are too wide, except in drawings and examples.
fn too_wide(text: &str) -> Vec<usize> {
    let mut is_drawing = false;
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(said) = said(line) else {
            is_drawing = false;
            continue;
        };
        if said.starts_with("```") {
            is_drawing = !is_drawing;
        } else if !is_drawing && is_too_wide(line, said) {
            wide.push(index + 1);
        }
    }
    wide
}

/// The text of a comment line.
fn said(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim_start())
}

fn is_too_wide(line: &str, said: &str) -> bool {
    let indent = line.chars().count() - said.chars().count();
    let fits = WIDTH_MAX.saturating_sub(indent);
    // Otherwise a break would leave the same long word.
    let can_be_broken = said.chars().take(fits + 1).any(char::is_whitespace);
    line.chars().count() > WIDTH_MAX && can_be_broken && !said.starts_with('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_could_be_broken_is_not_wider_than_the_limit() {
        let word = "word ".repeat(20);
        let link = format!("https://{}", "x".repeat(100));
        for (line, expected) in [
            (format!("/// {}", word.trim_end()), true),
            (format!("    // {}", &word[..94]), true),
            (format!("// {}", &word[..95]), false),
            (format!("/// {link}"), false),
            (format!("//! | {word}"), false),
            (format!("//! ```text\n//! {word}{word}\n//! ```"), false),
            (format!("let x = \"{word}{word}\";"), false),
        ] {
            assert_eq!(too_wide(&line), if expected { vec![1] } else { Vec::new() }, "{line}");
        }
    }
}
