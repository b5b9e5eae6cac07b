//! Standard output: tables for people, JSON for programs. A table wider than the terminal loses
//! columns from the right, never parts of an id; JSON always contains everything.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use comfy_table::{Table, presets};
use serde::Serialize;

use super::problem::Problem;

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table, for people
    #[default]
    Table,
    /// One JSON document, for programs
    Json,
}

/// Writes to standard output.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Problem> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Problem::closed_output(),
        _ => Problem::host("write to standard output", &error),
    })
}

/// Writes a JSON document.
pub(crate) fn json(data: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(data)
        .map_err(|error| Problem::failed(format!("cannot write JSON: {error}"), ""))?;
    write(format!("{text}\n").as_bytes())
}

/// Writes one line of JSON.
pub(crate) fn json_line(data: &impl Serialize) -> Result<(), Problem> {
    let text =
        serde_json::to_string(data).map_err(|error| Problem::failed(format!("cannot write JSON: {error}"), ""))?;
    write(format!("{text}\n").as_bytes())
}

/// Prints a table. The most important columns come first; the first one is always shown.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> Result<(), Problem> {
    write(render(titles, rows, width()).as_bytes())
}

/// Prints names and values, one pair per line.
pub(crate) fn fields(rows: &[(&str, String)]) -> Result<(), Problem> {
    let longest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let text: String = rows.iter().map(|(name, value)| format!("{name:longest$}  {}\n", harmless(value))).collect();
    write(text.as_bytes())
}

/// Prints a message on standard error.
pub(crate) fn talk(text: &str) {
    // If standard error is closed, the message is not wanted.
    let _ = writeln!(std::io::stderr(), "{}", harmless(text));
}

/// Returns the text without characters that a terminal would interpret. It may come from inside a
/// sandbox.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|symbol| if is_harmless(symbol) { symbol } else { '�' }).collect()
}

/// Returns whether a character neither controls a terminal, nor changes the direction of text, nor
/// is invisible.
fn is_harmless(symbol: char) -> bool {
    let is_hidden = matches!(
        symbol,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    symbol == '\n' || !symbol.is_control() && !is_hidden
}

fn render(titles: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let mut columns = titles.len();
    loop {
        let text = render_columns(titles, rows, columns);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        if columns <= 1 || width.is_none_or(|width| widest <= width) {
            return text;
        }
        columns -= 1;
    }
}

fn render_columns(titles: &[&str], rows: &[Vec<String>], columns: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(titles[..columns].iter().copied());
    for row in rows {
        table.add_row(row.iter().take(columns).map(|cell| harmless(cell).replace('\n', " ")));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the maximum width of a table, or none if there is no limit.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_loses_columns_from_the_right() {
        let rows = [vec!["abcdefghij".to_owned(), "web".to_owned(), "running".to_owned()]];
        let titles = ["ID", "NAME", "STATE"];
        assert_eq!(render(&titles, &rows, None), "ID          NAME  STATE\nabcdefghij  web   running\n");
        assert_eq!(render(&titles, &rows, Some(20)), "ID          NAME\nabcdefghij  web\n");
        assert_eq!(render(&titles, &rows, Some(3)), "ID\nabcdefghij\n");
        assert_eq!(render(&titles, &[], None), "ID  NAME  STATE\n");
    }

    #[test]
    fn nothing_from_inside_commands_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\rc\nü"), "a�[2Jb�c\nü");
    }

    #[test]
    fn nothing_from_inside_turns_the_direction_of_a_table_or_hides_in_it() {
        // In a terminal that orders text, the first name would read `ok-exe.txt`.
        for (name, shown) in
            [("ok-\u{202e}txt.exe", "ok-�txt.exe"), ("\u{2066}a\u{2069}", "�a�"), ("we\u{200b}b", "we�b")]
        {
            let text = render(&["NAME", "STATE"], &[vec![name.to_owned(), "running".to_owned()]], None);
            assert!(text.contains(&format!("{shown} ")), "{text:?}");
        }
    }
}
