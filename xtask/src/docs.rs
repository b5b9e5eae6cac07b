//! Checks that this program accepts every `cargo xtask` command in the documentation, and writes
//! the page of examples.

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

/// The examples of the SDKs: their names in Python, and what they show.
const EXAMPLES: [(&str, &str, &str); 5] = [
    ("agent_loop", "A coding agent that sleeps between turns", "While the model thinks, the sandbox is suspended."),
    ("best_of_eight", "The best of eight", "A sandbox is forked, and continues as the best of its forks."),
    (
        "notebook",
        "A notebook that is closed and opened again",
        "Its process sleeps, with its variables and open files.",
    ),
    ("web_app", "A web app that sleeps", "It wakes on a request, and continues with what it had in memory."),
    (
        "ensure_project",
        "A project with packages of pip and npm",
        "It is set up once. Every thread gets its sandbox, in whatever state that is.",
    ),
];

/// The examples with clients of E2B: their names in Python, and what they show.
const E2B_EXAMPLES: [(&str, &str, &str); 4] = [
    ("repl_that_sleeps", "An interpreter that sleeps", "It is paused after each answer; a question wakes it."),
    ("fork_and_choose", "Fork and choose", "Each fork of a sandbox tries another fix, and the best one stays."),
    ("template", "A template with a running program", "Its sandboxes start with the program running."),
    ("web_app", "A web app that wakes on a request", "It continues with what it had in memory."),
];

/// Returns the page of examples, with their output, which the suites of the SDKs compare.
fn examples(root: &std::path::Path) -> String {
    let mut page = "# Examples\n\nWhole programs with the [Python SDK](../sdk/python/README.md) and the\n[TypeScript \
                    SDK](../sdk/typescript/README.md), with what they print. The model of an agent is a script\nhere.\n"
        .to_owned();
    for (name, title, said) in EXAMPLES {
        page += &format!("\n## {title}\n\n{said}\n");
        let other = name.replace('_', "-");
        for (language, file) in [
            ("Python", format!("sdk/python/examples/{name}.py")),
            ("TypeScript", format!("sdk/typescript/examples/{other}.ts")),
        ] {
            let output = root.join(&file).with_extension("out");
            let output = std::fs::read_to_string(output).unwrap();
            page += &format!("\n[{language}](../{file}):\n\n```text\n{output}```\n");
        }
    }
    page += "\n## With clients of E2B\n\nThese use the unmodified [clients of E2B](e2b.md).\n";
    for (name, title, said) in E2B_EXAMPLES {
        page += &format!("\n### {title}\n\n{said}\n");
        let other = name.replace('_', "-");
        for (language, file) in
            [("Python", format!("examples/e2b/{name}.py")), ("TypeScript", format!("examples/e2b/{other}.ts"))]
        {
            let output = std::fs::read_to_string(root.join(format!("{file}.out"))).unwrap();
            page += &format!("\n[{language}](../{file}):\n\n```text\n{output}```\n");
        }
    }
    page
}

#[test]
fn the_page_of_examples_shows_what_they_print() {
    let root = setup::root().unwrap();
    let path = root.join("docs/examples.md");
    if std::env::var_os("DORM_UPDATE").is_some() {
        std::fs::write(&path, examples(&root)).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, examples(&root), "run this test with DORM_UPDATE=1");
}
