//! `dorm sbx watch`.

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::{Client, Dormouse};

use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::cli::signals::{Signals, ended_by};
use crate::exit;

const TITLES: [&str; 4] = ["WATCHER", "PATH", "RECURSIVE", "LAST"];

/// Options of `dorm sbx watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchOptions {
    #[command(subcommand)]
    verb: WatchVerb,
}

#[derive(Debug, Subcommand)]
enum WatchVerb {
    /// Print the changes in a directory as they happen
    ///
    /// With `-o json` each change is one line.
    Follow {
        /// The sandbox's id or name
        id: String,
        /// The directory in the sandbox
        path: String,
        /// Also watch everything below its entries
        #[arg(short, long)]
        recursive: bool,
    },
    /// Create a watcher, which keeps the changes in a directory until they are taken
    Create {
        /// The sandbox's id or name
        id: String,
        /// The directory in the sandbox
        path: String,
        /// Also watch everything below its entries
        #[arg(short, long)]
        recursive: bool,
    },
    /// List watchers
    Ls {
        /// The sandbox's id or name
        id: String,
    },
    /// Print the oldest changes that a watcher has kept, at most 1000, each with its number
    Take {
        /// The sandbox's id or name
        id: String,
        /// The watcher's number
        watcher: u64,
        /// Print only changes with a higher number, and forget those up to it
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
    },
    /// Remove a watcher
    Rm {
        /// The sandbox's id or name
        id: String,
        /// The watcher's number
        watcher: u64,
    },
}

/// Watches directories.
pub(super) async fn run(client: &Client, options: WatchOptions, format: Format) -> Done {
    match options.verb {
        WatchVerb::Follow { id, path, recursive } => return follow(client, &id, &path, recursive, format).await,
        WatchVerb::Create { id, path, recursive } => {
            let asked = wire::CreateWatcher { path: wire::Text::Plain(path), recursive: Some(recursive) };
            show(&[client.create_watcher(&id, &asked).await?], format, Many::No)?;
        }
        WatchVerb::Ls { id } => show(&client.watchers(&id).await?.watchers, format, Many::Yes)?,
        WatchVerb::Take { id, watcher, after } => take(client, &id, watcher, after, format).await?,
        WatchVerb::Rm { id, watcher } => client.remove_watcher(&id, watcher).await?,
    }
    Ok(exit::OK)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    Yes,
    No,
}

fn show(watchers: &[wire::Watcher], format: Format, many: Many) -> Result<(), Problem> {
    match (format, watchers) {
        (Format::Json, [one]) if many == Many::No => output::json(one),
        (Format::Json, all) => output::json(&all),
        (Format::Table, all) => {
            let row = |one: &wire::Watcher| {
                let recursive = if one.recursive { "yes" } else { "no" };
                let path = output::harmless(&one.path.to_string());
                vec![one.watcher.to_string(), path, recursive.to_owned(), one.last.to_string()]
            };
            output::table(&TITLES, &all.iter().map(row).collect::<Vec<_>>())
        }
    }
}

/// Prints a page of the changes that are kept. They are forgotten only when a later take names
/// them, so none is lost if this process ends first.
async fn take(client: &Client, id: &str, watcher: u64, after: u64, format: Format) -> Result<(), Problem> {
    let page = client.take_changes(id, watcher, &after.to_string()).await?;
    match format {
        Format::Json => output::json(&page),
        Format::Table => {
            let line = |one: &wire::WatcherEvent| format!("{} {}", one.number, line(one.kind, &one.path));
            output::write(page.events.iter().map(line).collect::<String>().as_bytes())?;
            if page.more {
                output::talk(&format!("there are more changes: continue with --after {}", page.next));
            }
            Ok(())
        }
    }
}

async fn follow(client: &Client, id: &str, path: &str, recursive: bool, format: Format) -> Done {
    let mut signals = Signals::new()?;
    let files = Dormouse::new(client.clone()).sandbox(id).files();
    let mut changes = if recursive { files.watch_all(path).await? } else { files.watch(path).await? };
    loop {
        let change = tokio::select! {
            change = changes.next() => change?,
            number = signals.next() => return Ok(ended_by(number)),
        };
        let Some(change) = change else {
            return Err(Problem::failed(
                "the stream of changes has ended, since the sandbox or the daemon has stopped",
                "changes since then are kept only by a watcher, see `dorm sbx watch create`",
            ));
        };
        match format {
            Format::Json => output::json_line(&change)?,
            Format::Table => output::write(line(change.kind, &change.path).as_bytes())?,
        }
    }
}

fn line(kind: wire::WatchKind, path: &wire::Text) -> String {
    format!("{} {}\n", shown::word(&kind), output::harmless(&path.to_string().replace('\n', "�")))
}
