//! The page that people read.

use std::fmt::Write as _;

use super::{Aspect, CELLS, OPEN, State};

/// The page. `engines` are an engine's name and what stands before the names of its tests.
///
/// # Errors
/// A line for each cell that has no check and is not on the list of open ones, or is twice or on both.
pub fn page(engines: &[(&str, &str)]) -> Result<String, Vec<String>> {
    let mut wrong = Vec::new();
    let mut text = String::from(
        "# The lifecycle matrix\n\nWritten from the table of checks in `crates/dorm-testing/src/matrix.rs` by `DORM_REWRITE=1 cargo nextest run \
         --release -p dorm matrix`; do not edit. Every sentence is checked over HTTP on each engine, by the test of that name:\n\n",
    );
    for (engine, before) in engines {
        let _ = writeln!(text, "- {engine}: `{before}` and the name");
    }
    for state in State::ALL {
        let _ = writeln!(text, "\n## {}\n\n| | what holds | test |\n|---|---|---|", state.as_str());
        for aspect in Aspect::ALL {
            let cells: Vec<_> = CELLS.iter().filter(|cell| (cell.state, cell.aspect) == (state, aspect)).collect();
            let is_open = OPEN.contains(&(state, aspect));
            if cells.is_empty() != is_open {
                wrong.push(format!("{} × {}: {} checks", state.as_str(), aspect.as_str(), cells.len()));
            }
            for cell in cells {
                let _ = writeln!(text, "| {} | {} | `{}` |", aspect.as_str(), cell.says, cell.name);
            }
            if is_open {
                let _ = writeln!(text, "| {} | **open: not checked yet** | |", aspect.as_str());
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(text),
        false => Err(wrong),
    }
}
