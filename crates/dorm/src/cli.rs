//! The command line: what is typed, which verb it is, and what the program's end says.
//!
//! One verb is one file under `cli/`. A verb asks the daemon through [`crate::client`], prints data on standard output
//! and talk on standard error, and returns its exit code; see [`exit`] for their meanings.

mod backup;
mod build;
mod completions;
mod connection;
mod doctor;
mod events;
mod exit;
mod gc;
mod image;
mod key;
mod man;
mod output;
mod problem;
mod progress;
mod prove;
mod pull;
mod quarantine;
#[cfg(test)]
mod reference;
mod repair;
mod sbx;
mod shown;
mod signals;
pub(crate) mod values;
mod volume;
mod webhook;
mod why;

use clap::{Parser, Subcommand};

use crate::serve::ServeOptions;

/// Where the daemon keeps everything, unless it is told otherwise.
pub(crate) const DATA: &str = "/var/lib/dormouse";
/// The exit code of whatever did not work and has no code of its own.
pub(crate) const FAILED: u8 = exit::FAILED;
/// The exit code of a daemon that has ended with work under way.
pub(crate) const UNFINISHED: u8 = exit::UNFINISHED;

/// Sandboxes for AI agents, on your own host: they start in tens of milliseconds, sleep with their memory and processes,
/// and wake up where they were.
#[derive(Debug, Parser)]
#[command(name = "dorm", version, after_long_help = exit::HELP, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

impl Arguments {
    /// Whether this process is to be the daemon.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self.verb, Verb::Serve(_))
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon until SIGTERM or SIGINT; sandboxes outlive it
    Serve(Box<ServeOptions>),
    /// Look for what this host has and lacks
    Doctor(doctor::DoctorOptions),
    /// Check on this host that nothing is lost: kill daemons, fill disks, damage images
    Prove(prove::ProveOptions),
    /// Create, use and end sandboxes
    #[command(visible_alias = "sandbox")]
    Sbx(Box<sbx::SbxOptions>),
    /// Import, list and remove the images that sandboxes start from
    Image(image::ImageOptions),
    /// Make, list and remove volumes, storage that outlives sandboxes; copy files into and out of them
    Volume(volume::VolumeOptions),
    /// Show what happened
    Events(events::EventsOptions),
    /// Send events to programs of one's own
    Webhook(webhook::WebhookOptions),
    /// Make, list and revoke keys that open the API
    Key(key::KeyOptions),
    /// Delete from the disk what is to be deleted, or say what is there and why
    Gc(gc::GcOptions),
    /// Write a copy of all records into a file, while the daemon works
    Backup(backup::BackupOptions),
    /// Put a backup into an empty data directory, or in the place of a database; no daemon may use the directory
    Restore(backup::RestoreOptions),
    /// Rebuild records that cannot be read from what else is on the disk; no daemon may use the directory
    Repair(repair::RepairOptions),
    /// Explain why a sandbox is where it is, and what happens next
    Why(why::WhyOptions),
    /// Print a script that completes verbs and options in a shell
    Completions(completions::CompletionsOptions),
    /// Write the manual pages
    #[command(hide = true)]
    ManPages(man::ManPagesOptions),
}

impl Arguments {
    /// Whether it is a verb that writes to the data directory itself.
    pub(crate) fn writes_data(&self) -> bool {
        matches!(self.verb, Verb::Serve(_) | Verb::Restore(_) | Verb::Repair(_))
    }
}

/// Does what was typed; answers the program's exit code.
pub(crate) async fn run(arguments: Arguments) -> u8 {
    let (done, on_problem) = match arguments.verb {
        Verb::Serve(options) => return serve(*options).await,
        Verb::Doctor(options) => (doctor::run(options).await, None),
        Verb::Prove(options) => (prove::run(options).await, None),
        Verb::Sbx(options) => {
            let on_problem = options.on_problem();
            (sbx::run(*options).await, on_problem)
        }
        Verb::Image(options) => (image::run(options).await, None),
        Verb::Volume(options) => (volume::run(options).await, None),
        Verb::Events(options) => (events::run(options).await, None),
        Verb::Webhook(options) => (webhook::run(options).await, None),
        Verb::Key(options) => (key::run(options).await, None),
        Verb::Gc(options) => (gc::run(options).await, None),
        Verb::Backup(options) => (backup::backup(options).await, None),
        Verb::Restore(options) => (backup::restore(options).await, None),
        Verb::Repair(options) => (repair::run(options).await, None),
        Verb::Why(options) => (why::run(options).await, None),
        Verb::Completions(options) => (completions::run(&options), None),
        Verb::ManPages(options) => (man::run(&options), None),
    };
    match done {
        Ok(code) => code,
        Err(problem) => {
            problem.tell();
            on_problem.filter(|_| !problem.is_closed_output()).unwrap_or(problem.exit_code())
        }
    }
}

async fn serve(options: ServeOptions) -> u8 {
    use std::io::IsTerminal as _;
    let filter = tracing_subscriber::EnvFilter::try_from_env("DORM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match crate::serve::serve(options).await {
        Ok(()) => exit::OK,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit::FAILED
        }
    }
}
