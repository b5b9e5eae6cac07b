//! `dorm completions`: a script with which a shell completes verbs and options. It calls no daemon,
//! so names of sandboxes are not completed.

use clap::CommandFactory as _;
use clap_complete::{generate, shells};

use super::Arguments;
use super::output;
use super::problem::Done;
use crate::exit;

/// Options of `dorm completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(crate) fn run(options: &CompletionsOptions) -> Done {
    output::write(&script(options.shell))?;
    Ok(exit::OK)
}

fn script(shell: Shell) -> Vec<u8> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "dorm", &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, "dorm", &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, "dorm", &mut script),
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_a_script_with_every_verb() {
        for (shell, mark) in
            [(Shell::Bash, "complete -F _dorm"), (Shell::Zsh, "#compdef dorm"), (Shell::Fish, "complete -c dorm")]
        {
            let script = String::from_utf8(script(shell)).unwrap();
            assert!(script.contains(mark), "{shell:?}");
            for word in ["serve", "checkpoint", "completions", "memory-budget-mib"] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
    }
}
