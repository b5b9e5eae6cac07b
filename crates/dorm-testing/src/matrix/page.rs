//! The generated page.

use std::fmt::Write as _;

use super::{Aspect, CELLS, State};

/// Renders the page. `engines` has the name of each engine and the prefix of its tests' names.
pub fn page(engines: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "# The lifecycle matrix\n\nWritten from the table of checks in `crates/dorm-testing/src/matrix.rs` by `DORM_UPDATE=1 cargo nextest run \
         --release -p dorm matrix`; do not edit. Every guarantee is checked over HTTP on each engine, by the test of that name:\n\n",
    );
    for (engine, before) in engines {
        let _ = writeln!(text, "- {engine}: `{before}` and the name");
    }
    for state in State::ALL {
        let _ = writeln!(text, "\n## {}\n\n| | what holds | test |\n|---|---|---|", state.as_str());
        for aspect in Aspect::ALL {
            for cell in CELLS.iter().filter(|cell| (cell.state, cell.aspect) == (state, aspect)) {
                let _ = writeln!(text, "| {} | {} | `{}` |", aspect.as_str(), cell.says, cell.name);
            }
        }
    }
    text
}
