//! Splits a file into code and the prose in it: comments, or the paragraphs of a Markdown file.

use super::File;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sentences.
    Prose,
    /// A heading or a row of a table, which need not be sentences.
    Title,
    Code,
}

/// A paragraph, or a line of code.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Lines of a paragraph are joined by spaces.
    pub(super) text: String,
    /// Where in `text` each line begins, and its number.
    lines: Vec<(usize, usize)>,
}

impl Block {
    /// The number of the line that has the byte `at` of the text.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.iter().take_while(|(start, _)| *start <= at).last().map_or(0, |(_, number)| *number)
    }
}

#[derive(Default)]
struct Blocks {
    done: Vec<Block>,
    is_open: bool,
}

impl Blocks {
    fn add(&mut self, kind: Kind, number: usize, text: &str) {
        self.is_open = kind == Kind::Prose;
        self.done.push(Block { kind, text: text.to_owned(), lines: vec![(0, number)] });
    }

    /// Continues the paragraph before, or begins one. An empty line ends it.
    fn prose(&mut self, number: usize, text: &str) {
        let text = text.trim();
        let begins = text.starts_with("- ") || text.starts_with("* ");
        match self.done.last_mut().filter(|_| self.is_open && !begins) {
            _ if text.is_empty() => self.is_open = false,
            Some(block) => {
                block.text.push(' ');
                block.lines.push((block.text.len(), number));
                block.text.push_str(text);
            }
            None => self.add(Kind::Prose, number, text),
        }
    }
}

pub(super) fn blocks(file: &File) -> Vec<Block> {
    let mut blocks = Blocks::default();
    let (is_markdown, is_rust) = (file.has_extension("md"), file.has_extension("rs"));
    let mut is_code = false;
    for (at, line) in file.text.lines().enumerate() {
        let number = at + 1;
        if is_markdown {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            if is_fence || is_code {
                blocks.add(Kind::Code, number, line);
            } else if line.starts_with('#') || line.trim_start().starts_with('|') {
                blocks.add(Kind::Title, number, line);
            } else {
                blocks.prose(number, line);
            }
            continue;
        }
        let (code, comment) = split(line, is_rust);
        if !code.trim().is_empty() {
            blocks.add(Kind::Code, number, code);
        }
        match comment {
            Some(comment) if code.trim().is_empty() => blocks.prose(number, comment),
            Some(comment) => {
                blocks.is_open = false;
                blocks.prose(number, comment);
                blocks.is_open = false;
            }
            None => blocks.is_open = false,
        }
    }
    blocks.done
}

/// Returns a line of Rust without its comment.
pub(crate) fn code(line: &str) -> &str {
    split(line, true).0
}

/// The code of a line, and the text of the comment behind it.
fn split(line: &str, is_rust: bool) -> (&str, Option<&str>) {
    let strings = strings(line);
    let mark = if is_rust { "//" } else { "#" };
    let begins = |at: &usize| {
        let is_first = line[..*at].ends_with([' ', '\t']) || *at == 0;
        !strings.iter().any(|(start, end)| (*start..*end).contains(at)) && (is_first || is_rust)
    };
    match line.match_indices(mark).map(|(at, _)| at).find(begins) {
        Some(at) => (&line[..at], Some(line[at..].trim_start_matches(['/', '!', '#']))),
        None => (line, None),
    }
}

/// Where strings in double quotes are in a line of code: from behind the first quote to the last
/// one. Strings of several lines are not followed.
pub(super) fn strings(line: &str) -> Vec<(usize, usize)> {
    let (mut strings, mut open, mut is_escaped) = (Vec::new(), None, false);
    for (at, symbol) in line.char_indices() {
        let is_quote = symbol == '"' && !is_escaped && !line[..at].ends_with('\'');
        is_escaped = symbol == '\\' && !is_escaped;
        match open {
            Some(start) if is_quote => {
                strings.push((start, at));
                open = None;
            }
            None if is_quote => open = Some(at + 1),
            _ => {}
        }
    }
    strings.extend(open.map(|start| (start, line.len())));
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str, text: &str) -> Vec<(Kind, String, usize)> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        blocks(&file).into_iter().map(|block| (block.kind, block.text.clone(), block.line(block.text.len()))).collect()
    }

    #[test]
    fn comments_in_a_row_are_a_paragraph_and_code_is_a_line() {
        let text = "/// One\n/// two.\n///\n/// Three.\nlet a = \"// none\"; // behind\n// own\n";
        let expected = [
            (Kind::Prose, "One two.", 2),
            (Kind::Prose, "Three.", 4),
            (Kind::Code, "let a = \"// none\"; ", 5),
            (Kind::Prose, "behind", 5),
            (Kind::Prose, "own", 6),
        ];
        assert_eq!(shown("a.rs", text), expected.map(|(kind, text, line)| (kind, text.to_owned(), line)));
        let expected = [(Kind::Code, "echo \"$#\" ${a#b} ", 1), (Kind::Prose, "c", 1)];
        assert_eq!(
            shown("a.sh", "echo \"$#\" ${a#b} # c"),
            expected.map(|(kind, text, line)| (kind, text.to_owned(), line))
        );
    }

    #[test]
    fn markdown_has_paragraphs_list_items_titles_and_code() {
        let text = "# Title\nOne\ntwo\n- item\n- more\n\n| a |\n```sh\ncode\n```\nend";
        let expected = [
            (Kind::Title, "# Title", 1),
            (Kind::Prose, "One two", 3),
            (Kind::Prose, "- item", 4),
            (Kind::Prose, "- more", 5),
            (Kind::Title, "| a |", 7),
            (Kind::Code, "```sh", 8),
            (Kind::Code, "code", 9),
            (Kind::Code, "```", 10),
            (Kind::Prose, "end", 11),
        ];
        assert_eq!(shown("a.md", text), expected.map(|(kind, text, line)| (kind, text.to_owned(), line)));
    }
}
