//! Checks that the program accepts every command of `dorm` in the documentation. The commands of
//! the quick start are also run: see `tests/daemon/docs.rs`.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use dorm_testing::docs;

use super::Arguments;

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The same command, which ignores the environment of the test.
fn deaf(command: Command) -> Command {
    let command = command.mut_args(|argument| argument.env(None::<&str>));
    let names: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, deaf))
}

#[test]
fn every_command_in_a_block_is_understood() {
    let (root, command) = (root(), deaf(Arguments::command()));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in docs::pages(&root).unwrap() {
        for block in docs::blocks(&root, &page).unwrap().iter().filter(|block| block.language == "sh") {
            for docs::Command { place, words } in docs::commands(block).unwrap() {
                if words[0] != "dorm" && !words[0].ends_with("/dorm") {
                    continue;
                }
                seen += 1;
                match command.clone().try_get_matches_from(&words) {
                    Ok(_) => {}
                    Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {}
                    Err(error) => wrong.push(format!("{place}: {}\n{error}", words.join(" "))),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 60, "only {seen} commands were found");
}

#[test]
fn every_verb_and_flag_in_prose_exists() {
    let root = root();
    let mut command = Arguments::command();
    command.build();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in docs::pages(&root).unwrap() {
        for (place, span) in docs::spans(&root, &page).unwrap() {
            let mut words = span.split_whitespace();
            if words.next() != Some("dorm") {
                continue;
            }
            seen += 1;
            if let Some(problem) = unknown(&command, words) {
                wrong.push(format!("{place}: `{span}`: {problem}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 60, "only {seen} commands were found");
}

/// The first of these words that is neither a verb nor a flag of `command`. Values are not checked.
fn unknown<'w>(command: &Command, words: impl Iterator<Item = &'w str>) -> Option<String> {
    let mut verb = command;
    let mut has_arguments = false;
    for word in words.take_while(|word| *word != "--") {
        if let Some(name) = word.strip_prefix("--") {
            let name = name.split('=').next().unwrap_or(name);
            let is_known = verb.get_arguments().any(|argument| argument.get_long() == Some(name)) || name == "help";
            if !is_known {
                return Some(format!("'{}' has no flag --{name}", verb.get_name()));
            }
            has_arguments = true;
        } else if let Some(found) = verb.find_subcommand(word).filter(|_| !has_arguments) {
            verb = found;
        } else if verb.has_subcommands() && !has_arguments && verb.get_positionals().next().is_none() {
            return Some(format!("'{}' has no verb '{word}'", verb.get_name()));
        } else {
            has_arguments = true;
        }
    }
    None
}

#[test]
fn every_configuration_file_is_understood() {
    let (root, command) = (root(), Arguments::command());
    let matches = command.clone().get_matches_from(["dorm", "serve"]);
    let (serve, matches) = (command.find_subcommand("serve").unwrap(), matches.subcommand_matches("serve").unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dorm.toml");
    let mut seen = 0;
    // The definitions of environments are executed by the test of their page.
    let is_of_daemon = |page: &std::path::PathBuf| !page.ends_with("docs/environments.md");
    for page in docs::pages(&root).unwrap().into_iter().filter(is_of_daemon) {
        for block in docs::blocks(&root, &page).unwrap().iter().filter(|block| block.language == "toml") {
            seen += 1;
            std::fs::write(&path, &block.text).unwrap();
            let read = crate::configuration::read(&path, serve, matches);
            let place = format!("{}:{}", block.page, block.line);
            assert!(!read.unwrap_or_else(|error| panic!("{place}: {error}")).0.is_empty(), "{place} sets nothing");
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_variable_that_a_block_sets_exists() {
    let (root, command) = (root(), Arguments::command());
    let variables: Vec<_> = command
        .find_subcommand("serve")
        .unwrap()
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str())
        .collect();
    let mut seen = 0;
    for page in docs::pages(&root).unwrap() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.lines().filter(|line| line.starts_with("DORM_")) {
            seen += 1;
            let name = line.split('=').next().unwrap();
            assert!(variables.contains(&name), "{}: {line}", page.display());
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_json_block_is_json_and_every_block_has_a_language_that_is_checked() {
    let root = root();
    for page in docs::pages(&root).unwrap() {
        for block in docs::blocks(&root, &page).unwrap() {
            let place = format!("{}:{}", block.page, block.line);
            match block.language.as_str() {
                "json" => {
                    let _: serde_json::Value =
                        serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"));
                }
                // Text is output. The picture of the lifecycle is compared where the lifecycle is.
                "sh" | "toml" | "python" | "text" | "mermaid" => {}
                language => panic!("{place}: no test looks at '{language}'"),
            }
        }
    }
}
