//! The directory that a build copies files from. Paths that `.dockerignore` excludes are not part
//! of it, and nothing outside of it is ever read, wherever links lead.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dorm_build::context::{Context as Listing, Entry, FileEntry, glob};
use futures_util::Stream;
use globset::GlobMatcher;
use tokio::sync::mpsc;

use crate::cli::problem::Problem;

const IGNORE: &str = ".dockerignore";
/// How many pieces of the archive wait to be sent.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 256 << 10;

/// The files of a context directory, and the hash that names them.
#[derive(Debug)]
pub(crate) struct Context {
    root: PathBuf,
    pub(super) listing: Listing,
    pub(crate) hash: String,
}

/// The effect of a line of `.dockerignore` on the paths it matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ignored {
    Yes,
    No,
}

/// The lines of `.dockerignore`.
struct Ignoring(Vec<(GlobMatcher, Ignored)>);

impl Context {
    /// Reads an existing directory.
    pub(crate) fn open(path: &Path) -> Result<Self, Problem> {
        let host = |error| Problem::host(format!("read the context {}", path.display()), &error);
        let root = fs::canonicalize(path).map_err(host)?;
        if !root.is_dir() {
            let message = format!("the context {} is not a directory", path.display());
            return Err(Problem::usage(message, "give the directory to copy files from"));
        }
        let text = match fs::read_to_string(root.join(IGNORE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            other => other.map_err(|error| Problem::host(format!("read {IGNORE}"), &error))?,
        };
        let ignoring = Ignoring::read(&text)?;
        let mut listing = Listing::default();
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            let host = |error| Problem::host(format!("list {}", root.join(&below).display()), &error);
            for entry in fs::read_dir(root.join(&below)).map_err(host)? {
                let below = below.join(entry.map_err(host)?.file_name());
                let entry = ignoring.entry(&root, &below, &mut left)?;
                let (Some(entry), Some(text)) = (entry, below.to_str()) else { continue };
                listing.insert(text, entry).map_err(|error| Problem::usage(error.to_string(), ""))?;
            }
        }
        listing.complete().map_err(|error| Problem::usage(error.to_string(), ""))?;
        let hash = listing.select(&[".".to_owned()]).map_err(|error| Problem::usage(error.to_string(), ""))?.hash;
        Ok(Self { root, listing, hash })
    }

    /// Returns the context as a tar archive, which is written as it is read.
    pub(crate) fn archive(&self) -> impl Stream<Item = std::io::Result<Bytes>> + Send + use<> {
        let (pieces, read) = mpsc::channel(PIECES);
        let (root, listing) = (self.root.clone(), self.listing.clone());
        tokio::task::spawn_blocking(move || {
            let to = std::io::BufWriter::with_capacity(PIECE_BYTES, Pieces(pieces.clone()));
            if let Err(error) = write(&root, &listing, to) {
                // If the reader is gone, it does not want the reason.
                let _ = pieces.blocking_send(Err(error));
            }
        });
        futures_util::stream::unfold(read, |mut read| async move { Some((read.recv().await?, read)) })
    }
}

/// The pieces of an archive, for their reader.
struct Pieces(mpsc::Sender<std::io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write(root: &Path, listing: &Listing, to: impl Write) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(to);
    for (path, entry) in listing.entries() {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(0o755);
        header.set_size(0);
        match entry {
            Entry::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                archive.append_data(&mut header, path, std::io::empty())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, path, target)?;
            }
            Entry::File(file) => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_mode(file.mode);
                header.set_size(file.bytes);
                let content = File::open(root.join(path))?;
                if content.metadata()?.len() != file.bytes {
                    return Err(std::io::Error::other(format!("{path} has changed meanwhile")));
                }
                archive.append_data(&mut header, path, std::io::Read::take(content, file.bytes))?;
            }
        }
    }
    archive.into_inner()?.flush()
}

impl Ignoring {
    fn read(text: &str) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (what, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (Ignored::No, pattern.trim()),
                None => (Ignored::Yes, line),
            };
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            let matcher = glob(pattern).map_err(|error| {
                Problem::usage(format!("{IGNORE}, line {}: {error}", number + 1), "write a path, with * for any name")
            })?;
            all.push((matcher, what));
        }
        Ok(Self(all))
    }

    /// Returns whether `.dockerignore` excludes a path or a directory above it, and does not
    /// include it again.
    fn excludes(&self, path: &Path) -> bool {
        let mut is_ignored = false;
        for (matcher, what) in &self.0 {
            let named = path.ancestors().filter(|path| !path.as_os_str().is_empty()).any(|path| matcher.is_match(path));
            if named {
                is_ignored = *what == Ignored::Yes;
            }
        }
        is_ignored
    }

    /// Returns the entry of a path, unless it is excluded, and adds directories to be listed.
    fn entry(&self, root: &Path, below: &Path, left: &mut Vec<PathBuf>) -> Result<Option<Entry>, Problem> {
        let path = root.join(below);
        let host = |error| Problem::host(format!("read {}", path.display()), &error);
        let is_ignored = self.excludes(below);
        let facts = fs::symlink_metadata(&path).map_err(host)?;
        if facts.is_dir() && (!is_ignored || self.0.iter().any(|(_, what)| *what == Ignored::No)) {
            left.push(below.to_owned());
        }
        if is_ignored {
            return Ok(None);
        }
        let unfit = |what: &str| Problem::usage(format!("{} {what}", path.display()), "add it to .dockerignore");
        if below.to_str().is_none() {
            return Err(unfit("has a name that is not UTF-8"));
        }
        if facts.is_dir() {
            Ok(Some(Entry::Directory))
        } else if facts.is_symlink() {
            let target = fs::read_link(&path).map_err(host)?;
            let target = target.to_str().ok_or_else(|| unfit("is a link that is not UTF-8"))?;
            Ok(Some(Entry::Link(target.to_owned())))
        } else if facts.is_file() {
            let mode = facts.permissions().mode() & 0o7777;
            let mut content = blake3::Hasher::new();
            content.update_reader(File::open(&path).map_err(host)?).map_err(host)?;
            let hash = *content.finalize().as_bytes();
            Ok(Some(Entry::File(FileEntry { mode, bytes: facts.size(), hash, offset: 0 })))
        } else {
            Err(unfit("is not a file, directory or link"))
        }
    }
}

#[cfg(test)]
mod tests;
