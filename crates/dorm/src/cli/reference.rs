//! `docs/reference/cli.md`, generated from the clap definitions. The committed page must be
//! identical; `DORM_UPDATE=1` rewrites it.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};

use super::Arguments;
use crate::exit;

const HEAD: &str = "# The command line

Generated from `dorm` itself by `DORM_UPDATE=1 cargo nextest run --release -p dorm reference`; do not edit.

";

#[test]
fn the_committed_reference_is_what_the_program_says() {
    assert_committed("cli.md", &page());
}

/// Asserts that a page of `docs/reference` has this text, or writes it if `DORM_UPDATE` is set.
fn assert_committed(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("DORM_UPDATE").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/reference/{name} is stale: run this test with DORM_UPDATE=1");
}

const CONFIGURATION: &str = "# Configuration

Generated from `dorm` itself by `DORM_UPDATE=1 cargo nextest run --release -p dorm reference`; do not edit.

Every option of `dorm serve` has a default that works. To change one, use a flag, an environment
variable or a configuration file. A flag overrides a variable, and a variable overrides the file.

The file is TOML. `dorm serve --config FILE` reads it, as does `DORM_CONFIG=FILE`. There is no default
file. Keys are the names below:

```toml
memory-budget-mib = 16384
domain = [\"sandboxes.example.org\"]
keep-terminated = \"7d\"
```

The daemon does not start with a file that it cannot read, or that has an unknown key or an invalid
value; the error names the key. The file is read once, at the start.

`dorm config show` takes the same flags and variables, and shows each value and where it comes from:

```sh
dorm config show --config /etc/dormouse/dorm.toml
```

";

#[test]
fn the_committed_configuration_reference_is_what_the_program_says() {
    assert_committed("configuration.md", &configuration_page());
}

fn configuration_page() -> String {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve").unwrap();
    let mut page = CONFIGURATION.to_owned();
    let _ = writeln!(page, "| option | variable | default | meaning |\n|---|---|---|---|");
    for option in crate::configuration::options(serve) {
        let name = option.get_long().unwrap();
        let variable = option.get_env().unwrap().to_str().unwrap();
        let values: Vec<_> = option.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        let default = match (option.get_action(), values.as_slice()) {
            (clap::ArgAction::SetTrue, _) => "`false`".to_owned(),
            (_, []) => String::new(),
            (_, values) => format!("`{}`", values.join(", ")),
        };
        let help = option.get_long_help().or_else(|| option.get_help()).unwrap().to_string();
        let help = help.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(page, "| `{name}` | `{variable}` | {default} | {} |", help.trim_end_matches('.'));
    }
    page
}

#[test]
fn every_option_and_verb_is_explained() {
    fn look(command: &Command, path: &str) {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
        }
        for verb in command.get_subcommands() {
            let path = format!("{path} {}", verb.get_name());
            assert!(verb.get_about().is_some(), "{path} has no help");
            look(verb, &path);
        }
    }
    let command = Arguments::command();
    command.clone().debug_assert();
    look(&command, "dorm");
}

fn page() -> String {
    let mut command = quiet(Arguments::command().after_long_help(""));
    command.build();
    let mut page = HEAD.to_owned();
    let _ = writeln!(page, "```text\n{}\n```\n", exit::HELP);
    section(&mut page, &command, "dorm");
    format!("{}\n", page.trim_end())
}

/// Removes what depends on the environment or repeats itself.
fn quiet(command: Command) -> Command {
    let command = command.mut_args(|argument| argument.hide_env_values(true));
    let names: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, quiet))
}

fn section(page: &mut String, command: &Command, path: &str) {
    let help = command.clone().bin_name(path).render_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(page, "## `{path}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set()) {
        section(page, verb, &format!("{path} {}", verb.get_name()));
    }
}
