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

/// The numbers of the comment lines that are too wide.
fn too_wide(text: &str) -> Vec<usize> {
    let is_wide = |line: &str| {
        let comment = line.trim_start();
        let Some(said) = comment.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim_start()) else {
            return false;
        };
        let indent = line.chars().count() - said.chars().count();
        let fits = WIDTH_MAX.saturating_sub(indent);
        // A break at the last space that fits would leave a word on the line.
        let can_be_broken = said.chars().take(fits + 1).any(char::is_whitespace);
        line.chars().count() > WIDTH_MAX && can_be_broken && !said.starts_with('|')
    };
    text.lines().enumerate().filter(|(_, line)| is_wide(line)).map(|(index, _)| index + 1).collect()
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
            (format!("let x = \"{word}{word}\";"), false),
        ] {
            assert_eq!(too_wide(&line), if expected { vec![1] } else { Vec::new() }, "{line}");
        }
    }
}
