//! The command line: parses the arguments, runs the verb, and returns the exit code.
//!
//! One verb is one file under `cli/`. A verb calls the daemon through [`crate::client`], prints
//! data on standard output and messages on standard error, and returns its exit code; [`exit`]
//! lists the codes.

mod backup;
mod build;
mod ca;
mod completions;
mod config;
mod connection;
#[cfg(test)]
mod docs;
mod doctor;
mod ensure;
mod env;
mod environment;
mod events;
mod gc;
mod image;
mod key;
mod man;
mod operation;
mod output;
mod pool;
mod problem;
mod progress;
mod project;
mod prove;
mod pull;
mod quarantine;
#[cfg(test)]
mod reference;
mod repair;
mod sbx;
mod secret;
pub(crate) mod shown;
mod signals;
mod template;
mod volume;
mod webhook;
mod why;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::configuration;
use crate::exit;
use crate::serve::ServeOptions;

/// Sandboxes for AI agents, on your own host: they start in tens of milliseconds, sleep with their
/// memory and processes, and wake up where they were.
#[derive(Debug, Parser)]
#[command(name = "dorm", version, after_long_help = exit::HELP, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

impl Arguments {
    /// Parses the arguments of this process, and the configuration file of the daemon if they or
    /// the environment name one. Ends the process if that fails.
    pub(crate) fn of_process() -> Self {
        let given: Vec<OsString> = std::env::args_os().collect();
        match Self::with_file(given) {
            Ok(arguments) => arguments,
            Err(error) => error.exit(),
        }
    }

    fn with_file(given: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(&given)?;
        let Some((serve, chosen)) = with_configuration(&command, &matches) else {
            return Self::from_arg_matches(&matches);
        };
        let (matches, from_file) = match chosen.get_one::<PathBuf>(configuration::FILE) {
            None => (matches.clone(), BTreeSet::new()),
            Some(path) => {
                let (added, names) = configuration::read(path, serve, chosen)
                    .map_err(|error| Self::command().error(clap::error::ErrorKind::ValueValidation, error))?;
                (Self::command().try_get_matches_from(given.into_iter().chain(added))?, names)
            }
        };
        let mut arguments = Self::from_arg_matches(&matches)?;
        if let Verb::Config(config::ConfigOptions { verb: config::ConfigVerb::Show(options) }) = &mut arguments.verb
            && let Some((serve, chosen)) = with_configuration(&command, &matches)
        {
            options.settings = configuration::settings(serve, chosen, &from_file);
        }
        Ok(arguments)
    }

    /// Returns whether this process becomes the daemon.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self.verb, Verb::Serve(_))
    }
}

/// Returns the definition of `dorm serve` and the arguments of the verb, if that has its options.
fn with_configuration<'c, 'm>(
    command: &'c clap::Command,
    matches: &'m ArgMatches,
) -> Option<(&'c clap::Command, &'m ArgMatches)> {
    let serve = command.find_subcommand("serve")?;
    match matches.subcommand()? {
        ("serve", chosen) => Some((serve, chosen)),
        ("config", chosen) => Some((serve, chosen.subcommand()?.1)),
        _ => None,
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon until SIGTERM or SIGINT; sandboxes outlive it
    Serve(Box<ServeOptions>),
    /// Show the configuration of the daemon
    Config(config::ConfigOptions),
    /// Check what this host provides and what it lacks
    Doctor(doctor::DoctorOptions),
    /// Prove on this host that nothing is lost: kill daemons, fill disks, damage images
    Prove(prove::ProveOptions),
    /// Create, use and terminate sandboxes
    #[command(visible_alias = "sandbox")]
    Sbx(Box<sbx::SbxOptions>),
    /// Import, list and remove the images that sandboxes start from
    Image(image::ImageOptions),
    /// Create, list and remove volumes, storage that outlives sandboxes; copy files into and out of
    /// them
    Volume(volume::VolumeOptions),
    /// Show events
    Events(events::EventsOptions),
    /// List and show operations
    Operation(operation::OperationOptions),
    /// Send events to your own programs
    Webhook(webhook::WebhookOptions),
    /// List, follow and cancel the builds of images and templates
    Build(build::BuildVerbs),
    /// Create, list, tag and remove templates: names under which sandboxes are created
    Template(template::TemplateOptions),
    /// Create, list and remove pools of sandboxes that are made in advance, and claim from them
    Pool(pool::PoolOptions),
    /// Create, list, limit and remove projects: separate users of one daemon
    Project(project::ProjectOptions),
    /// Set, list and remove secrets that are added to requests outside of sandboxes
    Secret(secret::SecretOptions),
    /// Create, list and revoke API keys
    Key(key::KeyOptions),
    /// Print the certificate of the authority that signs for the daemon's own HTTPS hosts
    Ca(ca::CaOptions),
    /// Get the sandbox of an environment: the running one, else resumed, restored or created
    Ensure(Box<ensure::EnsureOptions>),
    /// Print the variables with which clients find the daemon, or list and remove environments
    Env(env::EnvOptions),
    /// Delete obsolete data from the disk, or show what is on it and why
    Gc(gc::GcOptions),
    /// Write a copy of all records to a file while the daemon runs
    Backup(backup::BackupOptions),
    /// Restore a backup into an empty data directory, or replace a database; no daemon may use the
    /// directory
    Restore(backup::RestoreOptions),
    /// Rebuild unreadable records from other data on the disk; no daemon may use the directory
    Repair(repair::RepairOptions),
    /// Explain the state of a sandbox and what happens next
    Why(why::WhyOptions),
    /// Print a script that completes verbs and options in a shell
    Completions(completions::CompletionsOptions),
    /// Write the manual pages
    #[command(hide = true)]
    ManPages(man::ManPagesOptions),
}

impl Arguments {
    /// Returns whether the verb writes to the data directory itself.
    pub(crate) fn writes_data(&self) -> bool {
        matches!(self.verb, Verb::Serve(_) | Verb::Restore(_) | Verb::Repair(_))
    }
}

/// Runs the verb and returns the exit code of the program.
pub(crate) async fn run(arguments: Arguments) -> u8 {
    let (done, on_problem) = match arguments.verb {
        Verb::Serve(options) => return serve(*options).await,
        Verb::Config(options) => (config::run(options), None),
        Verb::Doctor(options) => (doctor::run(options).await, None),
        Verb::Prove(options) => (prove::run(options).await, None),
        Verb::Sbx(options) => {
            let on_problem = options.on_problem();
            (sbx::run(*options).await, on_problem)
        }
        Verb::Image(options) => (image::run(options).await, None),
        Verb::Volume(options) => (volume::run(options).await, None),
        Verb::Events(options) => (events::run(options).await, None),
        Verb::Operation(options) => (operation::run(options).await, None),
        Verb::Webhook(options) => (webhook::run(options).await, None),
        Verb::Build(options) => (build::run_verb(options).await, None),
        Verb::Template(options) => (template::run(options).await, None),
        Verb::Pool(options) => (pool::run(options).await, None),
        Verb::Project(options) => (project::run(options).await, None),
        Verb::Secret(options) => (secret::run(options).await, None),
        Verb::Key(options) => (key::run(options).await, None),
        Verb::Ca(options) => (ca::run(options).await, None),
        Verb::Ensure(options) => (ensure::run(*options).await, None),
        Verb::Env(options) => (env::run(options).await, None),
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
