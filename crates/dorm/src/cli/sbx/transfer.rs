//! `dorm sbx checkpoint export`, `import` and `files`: snapshots as files, and the files of a
//! snapshot.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use dorm_client::Client;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio_util::io::ReaderStream;

use super::checkpoint::table;
use super::command;
use super::cp::place::Place;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::exit;
use crate::values;

const PIECE_BYTES: usize = 256 << 10;
/// The mode of a file that may contain anything that was in memory.
const MODE: u32 = 0o600;

/// Options of `dorm sbx checkpoint export`.
#[derive(Debug, clap::Args)]
pub(super) struct ExportOptions {
    /// The snapshot's id
    snapshot: String,
    /// The file to write, or - for standard output
    file: PathBuf,
}

/// Options of `dorm sbx checkpoint import`.
#[derive(Debug, clap::Args)]
pub(super) struct ImportOptions {
    /// The file, or - for standard input
    file: PathBuf,
    /// Delete the snapshot automatically after this time
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    expires: Option<f64>,
    /// A label for the snapshot, in addition to those in the file
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    label: Vec<(String, String)>,
}

/// Options of `dorm sbx checkpoint files`.
#[derive(Debug, clap::Args)]
pub(super) struct FilesOptions {
    /// The snapshot's id
    snapshot: String,
}

/// Writes a snapshot to a file, which appears complete or not at all.
pub(super) async fn export(client: &Client, options: ExportOptions) -> Done {
    let mut contents = client.export_snapshot(&options.snapshot).await?.boxed();
    if options.file.as_os_str() == "-" {
        while let Some(piece) = contents.next().await {
            output::write(&piece?)?;
        }
        return Ok(exit::OK);
    }
    let file = &options.file;
    let host = |error: std::io::Error| Problem::host(format!("write {}", file.display()), &error);
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().map(PathBuf::from).ok_or_else(|| {
        Problem::usage(format!("{} is not the name of a file", file.display()), "name the file to write")
    })?;
    let (draft, mut to) = Place::open(parent).and_then(|place| place.begin(&name, MODE)).map_err(host)?;
    let progress = Progress::bytes(&format!("exporting {}", options.snapshot));
    while let Some(piece) = contents.next().await {
        let piece = piece?;
        to.write_all(&piece).map_err(host)?;
        progress.add(piece.len());
    }
    to.sync_all().map_err(host)?;
    draft.keep().map_err(host)?;
    drop(progress);
    output::talk(&format!("wrote snapshot {} to {}", options.snapshot, file.display()));
    Ok(exit::OK)
}

/// Imports a snapshot and prints it.
pub(super) async fn import(client: &Client, options: ImportOptions, format: Format) -> Done {
    let labels = options.label.into_iter().collect();
    let file = &options.file;
    let snapshot = if file.as_os_str() == "-" {
        client.import_snapshot(&labels, options.expires, None, command::our_input()).await?
    } else {
        let host = |error: std::io::Error| Problem::host(format!("read {}", file.display()), &error);
        let from = tokio::fs::File::open(file).await.map_err(host)?;
        let found = from.metadata().await.map_err(host)?;
        let progress = Progress::bytes(&format!("importing {}", file.display()));
        let passed = progress.share();
        let contents = ReaderStream::with_capacity(from, PIECE_BYTES).inspect_ok(move |piece| passed(piece.len()));
        let length = Some(found.len()).filter(|_| found.is_file());
        client.import_snapshot(&labels, options.expires, length, contents).await?
    };
    match format {
        Format::Json => output::json(&snapshot)?,
        Format::Table => table(&[snapshot])?,
    }
    Ok(exit::OK)
}

/// Creates a filesystem snapshot from a memory snapshot and prints it.
pub(super) async fn files(client: &Client, options: FilesOptions, format: Format) -> Done {
    let progress = Progress::new(&format!("reading the files of {}", options.snapshot));
    let snapshot = client.snapshot_files(&options.snapshot).await?;
    drop(progress);
    match format {
        Format::Json => output::json(&snapshot)?,
        Format::Table => table(&[snapshot])?,
    }
    Ok(exit::OK)
}
