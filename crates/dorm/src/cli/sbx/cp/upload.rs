//! Copies into a sandbox.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dorm_api_types::FileKind;
use dorm_client::{Client, Wanted};
use futures_util::TryStreamExt as _;
use tokio_util::io::ReaderStream;

use super::super::command::our_input;
use super::{Skipped, join};
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::exit;

const PIECE_BYTES: usize = 256 << 10;

/// Copies standard input to a file.
pub(super) async fn from_stdin(client: &Client, sandbox: &str, path: &str) -> Done {
    let progress = Progress::bytes(path);
    let passed = progress.share();
    let contents = our_input().inspect_ok(move |piece| passed(piece.len()));
    client.write_file(sandbox, path, Wanted::default(), contents).await?;
    Ok(exit::OK)
}

/// Copies a file, or a directory with everything below it.
pub(super) async fn run(client: &Client, from: &Path, sandbox: &str, to: &str, into_directory: bool) -> Done {
    let found = std::fs::metadata(from).map_err(|error| {
        let message = format!("cannot read {}: {error}", from.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Problem::not_found(message, "name a file on this host"),
            _ => Problem::failed(message, ""),
        }
    })?;
    let there = client.stat(sandbox, to).await?;
    let is_directory = to == "/" || there.as_ref().is_some_and(|there| there.kind == FileKind::Directory);
    let target = if is_directory || (into_directory && !found.is_dir()) {
        match name(from)? {
            Some(name) => join(to, &name),
            None => to.to_owned(),
        }
    } else {
        to.to_owned()
    };
    let copy = Copy { client, sandbox, progress: Progress::bytes(&from.display().to_string()) };
    let mut skipped = Skipped::default();
    if found.is_dir() {
        copy.directory(from, &target, &mut skipped).await?;
    } else {
        copy.file(from, &target).await?;
    }
    skipped.done()
}

/// Returns the name that a path keeps in another directory, or none for paths that mean the content
/// of a directory, such as `.`.
fn name(path: &Path) -> Result<Option<String>, Problem> {
    let Some(name) = path.file_name() else { return Ok(None) };
    let text = name.to_str().map(|name| Some(name.to_owned()));
    text.ok_or_else(|| Problem::usage(format!("the name of {} is not UTF-8", path.display()), "rename it"))
}

struct Copy<'a> {
    client: &'a Client,
    sandbox: &'a str,
    progress: Progress,
}

impl Copy<'_> {
    async fn directory(&self, root: &Path, target: &str, skipped: &mut Skipped) -> Result<(), Problem> {
        let mut left: Vec<(PathBuf, String)> = vec![(root.to_owned(), target.to_owned())];
        while let Some((from, to)) = left.pop() {
            self.client.make_directory(self.sandbox, &to).await?;
            let host = |error: std::io::Error| Problem::host(format!("read the directory {}", from.display()), &error);
            let mut entries = std::fs::read_dir(&from).map_err(host)?.collect::<Result<Vec<_>, _>>().map_err(host)?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                let (path, kind) = (entry.path(), entry.file_type().map_err(host)?);
                let shown = path.display().to_string();
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    skipped.add(&shown, "its name is not UTF-8");
                    continue;
                };
                if kind.is_dir() {
                    left.push((path, join(&to, &name)));
                } else if kind.is_file() {
                    self.file(&path, &join(&to, &name)).await?;
                } else if kind.is_symlink() {
                    skipped.add(&shown, "links cannot be copied into a sandbox yet");
                } else {
                    skipped.add(&shown, "it is not a file, directory or link");
                }
            }
        }
        Ok(())
    }

    async fn file(&self, from: &Path, to: &str) -> Result<(), Problem> {
        let host = |error: std::io::Error| Problem::host(format!("read {}", from.display()), &error);
        let file = tokio::fs::File::open(from).await.map_err(host)?;
        let found = file.metadata().await.map_err(host)?;
        self.progress.say(from.display().to_string());
        let passed = self.progress.share();
        let contents = ReaderStream::with_capacity(file, PIECE_BYTES).inspect_ok(move |piece| passed(piece.len()));
        // Pipes, and files that the kernel generates as they are read, have no known length.
        let length = Some(found.len()).filter(|length| found.is_file() && *length > 0);
        let wanted = Wanted { mode: Some(found.permissions().mode() & 0o777), length, ..Wanted::default() };
        self.client.write_file(self.sandbox, to, wanted, contents).await?;
        Ok(())
    }
}
