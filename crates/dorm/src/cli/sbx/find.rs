//! `dorm sbx find` and `dorm sbx grep`.

use dorm_api_types as wire;
use dorm_client::{Client, Find, Grep};

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::exit;
use crate::values;

/// Options of `dorm sbx find`.
#[derive(Debug, clap::Args)]
pub(crate) struct FindOptions {
    /// The sandbox's id or name
    id: String,
    /// The directory in the sandbox
    path: String,
    /// A glob for the name, such as '*.rs'; one with a / is compared with the path below the
    /// directory
    #[arg(short, long, value_name = "GLOB")]
    name: Option<String>,
    /// Only files of this type
    #[arg(short = 't', long = "type", value_enum, value_name = "TYPE")]
    kind: Option<Kind>,
    #[command(flatten)]
    common: Common,
}

/// Options of `dorm sbx grep`.
#[derive(Debug, clap::Args)]
pub(crate) struct GrepOptions {
    /// The sandbox's id or name
    id: String,
    /// A regular expression
    pattern: String,
    /// The directory or file in the sandbox
    path: String,
    /// The pattern is the text itself
    #[arg(short = 'F', long)]
    literal: bool,
    /// A glob for the names of the files to search
    #[arg(short, long, value_name = "GLOB")]
    name: Option<String>,
    /// Also search binary files
    #[arg(long)]
    binary: bool,
    /// How much is read from files at most
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Ignore the case of letters
    #[arg(short, long)]
    ignore_case: bool,
    /// Levels of directories to search; 1 searches only the directory itself
    #[arg(long, value_name = "COUNT")]
    depth: Option<u32>,
    /// How many results are shown at most, up to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    limit: u32,
    /// How many files and directories are looked at
    #[arg(long, value_name = "COUNT")]
    max_entries: Option<u64>,
    /// How long the search may take
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30s")]
    timeout: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    /// Regular files
    File,
    /// Directories
    Directory,
    /// Symbolic links
    Link,
    /// Devices, sockets and pipes
    Other,
}

/// Prints the paths of files.
pub(super) async fn find(client: &Client, options: FindOptions, format: Format) -> Done {
    let common = options.common;
    let search = Find {
        path: options.path,
        name: options.name,
        kind: options.kind.map(|kind| match kind {
            Kind::File => wire::FileKind::File,
            Kind::Directory => wire::FileKind::Directory,
            Kind::Link => wire::FileKind::Link,
            Kind::Other => wire::FileKind::Other,
        }),
        ignore_case: common.ignore_case,
        depth: common.depth,
        limit: Some(common.limit),
        max_entries: common.max_entries,
        timeout_secs: Some(common.timeout),
    };
    let found = client.find(&options.id, &search).await?;
    match format {
        Format::Json => output::json(&found)?,
        Format::Table => {
            let lines: String = found.files.iter().map(|file| line(&file.path.to_string())).collect();
            output::write(lines.as_bytes())?;
            tell(&found.search);
        }
    }
    Ok(exit::OK)
}

/// Prints lines of files, each with its path and number.
pub(super) async fn grep(client: &Client, options: GrepOptions, format: Format) -> Done {
    let common = options.common;
    let search = Grep {
        path: options.path,
        pattern: options.pattern,
        literal: options.literal,
        ignore_case: common.ignore_case,
        name: options.name,
        binary: options.binary,
        depth: common.depth,
        limit: Some(common.limit),
        max_entries: common.max_entries,
        max_bytes: options.max_bytes,
        timeout_secs: Some(common.timeout),
    };
    let found = client.grep(&options.id, &search).await?;
    match format {
        Format::Json => output::json(&found)?,
        Format::Table => {
            let shown = |one: &wire::FoundLine| line(&format!("{}:{}:{}", one.path, one.line, one.text));
            output::write(found.lines.iter().map(shown).collect::<String>().as_bytes())?;
            tell(&found.search);
        }
    }
    Ok(exit::OK)
}

/// One line, whatever the text from the sandbox contains.
fn line(text: &str) -> String {
    format!("{}\n", output::harmless(&text.replace('\n', "�")))
}

/// Says what is missing in the results.
fn tell(search: &wire::SearchEnd) {
    if let Some(limit) = search.truncated_by {
        let why = match limit {
            wire::SearchLimit::Results => "there are more results: raise --limit",
            wire::SearchLimit::Entries => "there are more files: raise --max-entries",
            wire::SearchLimit::Bytes => "there is more to read: raise --max-bytes",
            wire::SearchLimit::Time => "the time is over: raise --timeout",
            wire::SearchLimit::Size => "the results take more than 4 MiB",
        };
        output::talk(&format!("the search is incomplete, {why}, or search a smaller directory"));
    }
    let left_out = [
        (search.binary_files, "binary files were skipped"),
        (search.unreadable, "files and directories could not be read"),
        (search.skipped_directories, "directories were skipped: too deep, or without stored files"),
    ];
    for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
        output::talk(&format!("{what}: {count}"));
    }
}
