//! `cargo xtask`: what a developer of Dormouse does with this repository, besides building it.
//!
//! Each subcommand is a module of its name. This file only lists them.

mod setup;

use std::process::ExitCode;

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
    /// Install what the host lacks and prepare the base image. Quick when nothing is to do.
    Setup,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Setup => setup::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
