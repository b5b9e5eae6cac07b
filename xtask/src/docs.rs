//! Checks that this program accepts every `cargo xtask` command in the documentation.

#![allow(clippy::unwrap_used)]

use clap::CommandFactory as _;
use dorm_testing::docs;

use crate::{Arguments, setup};

#[test]
fn every_command_in_the_documentation_is_understood() {
    let root = setup::root().unwrap();
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for page in docs::pages(&root).unwrap() {
        for block in docs::blocks(&root, &page).unwrap().iter().filter(|block| block.language == "sh") {
            said.extend(docs::commands(block).unwrap().into_iter().map(|command| (command.place, command.words)));
        }
        let spans = docs::spans(&root, &page).unwrap().into_iter();
        said.extend(spans.map(|(place, span)| (place, span.split_whitespace().map(str::to_owned).collect())));
    }
    let mut seen = 0;
    for (place, words) in said.iter().filter(|(_, words)| words.len() > 2 && words[..2] == ["cargo", "xtask"]) {
        seen += 1;
        let parsed = Arguments::command().try_get_matches_from(&words[1..]);
        assert!(parsed.is_ok(), "{place}: {}: {}", words.join(" "), parsed.unwrap_err());
    }
    assert!(seen > 10, "only {seen} commands were found");
}
