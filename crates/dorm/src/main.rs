//! The program that users run: the daemon (`dorm serve`) and the command line that calls it.
//!
//! This crate is the only place that names every leaf: engines, stores, network, API. The command
//! line itself uses only HTTP, like any other client.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod backup;
mod bounds;
mod cli;
mod clock;
mod configuration;
mod confine;
mod data;
mod data_disk;
mod doors;
mod exit;
mod guest_ids;
mod heap;
mod identity;
mod owner_socket;
mod program;
mod records;
mod repair;
mod serve;
mod shutdown;
mod steps;
mod tls;
mod values;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A worker parses untrusted data: it starts before anything exists that it could reach.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == dorm_worker::NAME) {
        return dorm_worker::run(std::env::args_os().skip(2), &[dorm_storage::READERS, dorm_memory_image::READERS]);
    }
    let arguments = cli::Arguments::of_process();
    if arguments.writes_data() {
        confine::mask_modes();
    }
    // Each thread has these properties for itself, so the daemon sets them before it has a second
    // one.
    if arguments.is_daemon()
        && let Err(error) = confine::process()
    {
        eprintln!("error: {:#}", anyhow::Error::from(error));
        return ExitCode::from(exit::FAILED);
    }
    if arguments.is_daemon() {
        heap::share();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the async runtime: {error}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = runtime.block_on(cli::run(arguments));
    // A thread that waits for terminal input must not keep the process alive.
    runtime.shutdown_background();
    ExitCode::from(code)
}
