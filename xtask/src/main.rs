//! `cargo xtask`: the tasks of a developer of Dormouse in this repository, besides building it.
//!
//! Each subcommand is a module of the same name. This file only lists them.

mod bench;
mod build;
mod check;
mod demo;
mod dist;
#[cfg(test)]
mod docs;
mod engine;
mod fuzz;
mod layers;
mod prove;
mod release_data;
mod setup;
mod sim;
mod skips;
mod test;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Tasks of the Dormouse repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what the host lacks and prepare the base image. Fast if there is nothing to do.
    Setup,
    /// Build dorm-runsc, the gVisor that Dormouse ships, and print its path. Fast if nothing has
    /// changed.
    Engine {
        /// Take hooks and files from this directory instead of engines/gvisor-mapped.
        #[arg(long, value_name = "DIRECTORY")]
        from: Option<PathBuf>,
    },
    /// Set up, build, and take one real sandbox through every state, with checks and times.
    Demo,
    /// Set up, build, and prove on this host that nothing is lost: see `dorm prove`.
    Prove {
        /// Options for `dorm prove`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Pass the checks and tests that need neither root nor Debian packages.
    Check {
        /// Check the subjects of the commits since this one, too.
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// Set up, build, and run every check and test.
    Test {
        /// Only tests whose names contain this text.
        filter: Option<String>,
    },
    /// Run the simulator: `--seed S` for one run, `--minutes N` for as many as fit. `--help` shows
    /// the other options.
    #[command(disable_help_flag = true)]
    Sim {
        /// Options for the simulator.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the fuzzers of the parsers of archives, manifests and names: see `fuzz/`. Needs a C++
    /// compiler.
    Fuzz {
        /// How long to run each fuzzer.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Only this target; may be given several times.
        #[arg(long, value_name = "TARGET")]
        only: Vec<String>,
    },
    /// Check the structure of the code.
    Layers,
    /// Check words, lengths, links and numbers in text. DORM_UPDATE=1 lowers what is still allowed
    /// in .config/tidy.txt.
    Tidy {
        /// Check the subjects of the commits since this one, too.
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// Build what is shipped: an archive and a Debian package in target/dist.
    Dist,
    /// Install the Debian package in a virtual machine with Debian 12 and systemd, and follow the
    /// quick start there. Takes some minutes.
    Vm {
        /// Put this program into the package instead of building one, such as target/release/dorm.
        #[arg(long, value_name = "PATH")]
        program: Option<PathBuf>,
    },
    /// Make the data directory that the upgrade test of later builds opens. Once per release, at
    /// its tag.
    ReleaseData,
    /// Compare the build that is shipped with stock runsc in the same run.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Setup => setup::run(),
        Command::Engine { from } => engine::run(from.as_deref()),
        Command::Demo => {
            let (dorm, environment) = build::dorm_beside(setup::ensure)?;
            wait(demo::run(&dorm, &environment.images))
        }
        Command::Prove { options } => {
            let (dorm, environment) = build::dorm_beside(setup::ensure)?;
            prove::run(&dorm, &environment, &options)
        }
        Command::Check { base } => check::run(base.as_deref()),
        Command::Test { filter } => test::run(filter.as_deref()),
        Command::Sim { arguments } => sim::run(&arguments),
        Command::Fuzz { minutes, only } => fuzz::run(&setup::root()?, minutes, &only),
        Command::Layers => layers::check(&setup::root()?),
        Command::Tidy { base } => tidy::check(&setup::root()?, base.as_deref()),
        Command::Dist => dist::run(),
        Command::Vm { program } => vm::run(&setup::ensure()?, program.as_deref()),
        Command::ReleaseData => {
            setup::ensure()?;
            wait(release_data::run(&build::dorm()?))
        }
        Command::Bench(options) if !options.measures() => bench::show(&options),
        Command::Bench(options) => {
            let environment = setup::ensure()?;
            setup::ensure_tools(&environment)?;
            let clients = setup::ensure_clients(&environment)?;
            let program = options.program()?;
            if options.needs_interpreter() {
                setup::ensure_interpreter(&program, &environment, &clients)?;
            }
            wait(bench::run(&program, (&environment, clients), &options))
        }
    }
}

fn wait(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?.block_on(work)
}
