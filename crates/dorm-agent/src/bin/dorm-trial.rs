//! A program with known memory, with which the host tries whether an engine can be used. It is not
//! part of the agent, whose bytes must not change without need: sleeping sandboxes have it mapped.
//!
//! It fills some memory and reports that. Meanwhile the host saves and restores the sandbox. After
//! a line on standard input it compares its memory, writes to every page, compares again, and
//! succeeds only if every word is right.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

const WORDS: usize = (4 << 20) / size_of::<u64>();
const WORDS_IN_PAGE: usize = 4096 / size_of::<u64>();

fn main() -> ExitCode {
    if matches!(run(), Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether all memory was right.
fn run() -> io::Result<bool> {
    let mut memory: Vec<u64> = (0..WORDS).map(word).collect();
    let mut output = io::stdout();
    output.write_all(b"ready\n")?;
    output.flush()?;
    io::stdin().lock().read_line(&mut String::new())?;
    if !memory.iter().enumerate().all(|(place, found)| *found == word(place)) {
        return Ok(false);
    }
    memory.iter_mut().step_by(WORDS_IN_PAGE).for_each(|word| *word = !*word);
    let expected = |place| if place % WORDS_IN_PAGE == 0 { !word(place) } else { word(place) };
    Ok(memory.iter().enumerate().all(|(place, found)| *found == expected(place)))
}

/// The word at a place, different at each.
fn word(place: usize) -> u64 {
    (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
