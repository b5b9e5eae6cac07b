//! Copies out of a sandbox.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use dorm_api_types::{FileKind, FileStat};
use dorm_client::Client;
use futures_util::StreamExt as _;

use super::place::Place;
use super::{Skipped, join, name_of};
use crate::cli::output;
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::exit;

/// Copies the content of a file to standard output.
pub(super) async fn to_stdout(client: &Client, sandbox: &str, path: &str) -> Done {
    let mut contents = client.read_file(sandbox, path).await?.boxed();
    while let Some(piece) = contents.next().await {
        output::write(&piece?)?;
    }
    Ok(exit::OK)
}

/// Copies a file, or a directory with everything below it.
pub(super) async fn run(client: &Client, sandbox: &str, path: &str, to: &Path) -> Done {
    let stat = client.stat(sandbox, path).await?;
    let Some(stat) = stat else {
        return Err(Problem::not_found(
            format!("there is no {path} in {sandbox}"),
            "list its directory with `ls` in the sandbox",
        ));
    };
    let copy = Copy { client, sandbox, progress: Progress::bytes(path) };
    let mut skipped = Skipped::default();
    let is_inside_directory = to.is_dir();
    let wanted = if is_inside_directory && !name_of(path).is_empty() { to.join(name_of(path)) } else { to.to_owned() };
    if stat.kind == FileKind::Directory {
        match std::fs::create_dir(&wanted) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && wanted.is_dir() => {}
            made => made.map_err(|error| Problem::host(format!("make the directory {}", wanted.display()), &error))?,
        }
        let place = open(&wanted)?;
        copy.directory(&place, path, &wanted, &mut skipped).await?;
    } else {
        if to.as_os_str().as_encoded_bytes().ends_with(b"/") && !is_inside_directory {
            return Err(Problem::usage(format!("there is no directory {}", to.display()), "make it first"));
        }
        let parent = wanted.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = wanted.file_name().map(PathBuf::from).ok_or_else(|| {
            Problem::usage(format!("{} is not the name of a file", to.display()), "name the file to write")
        })?;
        // A link that is named itself is followed, as `cp` does.
        let mode = if stat.kind == FileKind::File { mode(&stat) } else { 0o644 };
        copy.file(&open(parent)?, path, &name, mode, &wanted).await?;
    }
    skipped.done()
}

fn open(directory: &Path) -> Result<Place, Problem> {
    Place::open(directory).map_err(|error| Problem::host(format!("open the directory {}", directory.display()), &error))
}

fn mode(stat: &FileStat) -> u32 {
    u32::from_str_radix(&stat.mode, 8).unwrap_or(0o644)
}

struct Copy<'a> {
    client: &'a Client,
    sandbox: &'a str,
    progress: Progress,
}

impl Copy<'_> {
    /// Copies everything below `root` in the sandbox into `place`, which is `shown` on this host.
    async fn directory(&self, place: &Place, root: &str, shown: &Path, skipped: &mut Skipped) -> Result<(), Problem> {
        let mut left = vec![PathBuf::new()];
        while let Some(relative) = left.pop() {
            let inside =
                relative.to_str().filter(|path| !path.is_empty()).map_or(root.to_owned(), |path| join(root, path));
            let mut after = None;
            loop {
                let page = self.client.list(self.sandbox, &inside, 1, after.as_deref()).await?;
                for entry in page.entries {
                    let path = entry.path.to_bytes().ok().and_then(|path| String::from_utf8(path).ok());
                    let name = path.as_deref().map(name_of).filter(|name| !["", ".", ".."].contains(name));
                    let Some(name) = name else {
                        skipped.add(&entry.path.to_string(), "its name is not UTF-8");
                        continue;
                    };
                    let (from, path) = (join(&inside, name), relative.join(name));
                    self.entry(place, &entry, &from, &path, &shown.join(&path), skipped).await?;
                    if entry.kind == FileKind::Directory {
                        left.push(path);
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Copies one entry of a directory, but not the entries of a directory in it.
    async fn entry(
        &self,
        place: &Place,
        entry: &FileStat,
        from: &str,
        path: &Path,
        here: &Path,
        skipped: &mut Skipped,
    ) -> Result<(), Problem> {
        let host = |error| Problem::host(format!("write {}", here.display()), &error);
        match (entry.kind, &entry.link) {
            (FileKind::Directory, _) => place.make_directory(path).map_err(host)?,
            (FileKind::File, _) => self.file(place, from, path, mode(entry), here).await?,
            (FileKind::Link, Some(target)) => match target.to_bytes() {
                Ok(target) => place.link(path, &target).map_err(host)?,
                Err(_) => skipped.add(from, "its target cannot be read"),
            },
            (FileKind::Link, None) | (FileKind::Other, _) => {
                skipped.add(from, "it is not a file, directory or link");
            }
        }
        Ok(())
    }

    async fn file(&self, place: &Place, from: &str, to: &Path, mode: u32, shown: &Path) -> Result<(), Problem> {
        let mut contents = self.client.read_file(self.sandbox, from).await?.boxed();
        let host = |error: std::io::Error| Problem::host(format!("write {}", shown.display()), &error);
        self.progress.say(from.to_owned());
        let (draft, mut file) = place.begin(to, mode).map_err(host)?;
        while let Some(piece) = contents.next().await {
            let piece = piece?;
            file.write_all(&piece).map_err(host)?;
            self.progress.add(piece.len());
        }
        file.flush().map_err(host)?;
        draft.keep().map_err(host)
    }
}
