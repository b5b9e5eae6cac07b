//! The one program users run: the daemon (`dorm serve`) and the command line that speaks to it.
//!
//! This is the only place that names every leaf: engines, stores, network, API. The command line itself only speaks
//! HTTP, like any other client.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod backup;
mod cli;
mod client;
mod clock;
mod confine;
mod data;
mod data_disk;
mod identity;
mod owner_socket;
mod program;
mod records;
mod repair;
mod serve;
mod shutdown;
mod steps;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    if arguments.writes_data() {
        confine::mask_modes();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the program's runtime: {error}");
            return ExitCode::from(cli::FAILED);
        }
    };
    let code = runtime.block_on(cli::run(arguments));
    // A thread that waits for a terminal's input must not keep the program.
    runtime.shutdown_background();
    ExitCode::from(code)
}
