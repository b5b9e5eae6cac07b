//! The digest of an image: BLAKE3 over a listing of all its content, which depends on nothing else.
//!
//! The listing is read from the disk after everything is written, so that it describes what exists
//! and not what a source claimed. Timestamps are left out, so that two builds of the same content
//! are one image. Changing the format would change the digest of every image; it is version 1
//! permanently.
//!
//! Each image has a `files.list` beside it, with one line for each entry: the BLAKE3 of its part of
//! the listing, and its path. It proves nothing, as the digest does that; it tells which file
//! differs when the digest does.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blake3::Hasher;
use dorm_guest_ids::{GuestIds, capability};
use dorm_lifecycle::Digest;

use crate::error::{StorageError, failed};
use crate::hashing::hash_file;
use crate::reread::is_unread;

const CONTEXT: &str = "Dormouse image listing, version 1";

/// The first line of `files.list`.
const HEAD: &str = "files of an image, version 1";
/// The last line.
const END: &str = "end";
/// How many damaged files are named.
pub(super) const NAMED_MAX: usize = 20;

pub(super) struct Listing {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// The files that end before their length, each with a phrase whose subject it is.
    pub(super) lost: Vec<Damage>,
    /// The first file that the disk could not read, which says nothing about its content. The
    /// digest is without it.
    pub(super) unread: Option<Unread>,
}

/// A file that the disk could not read.
pub(super) struct Unread {
    path: PathBuf,
    error: io::Error,
}

impl Listing {
    /// Returns the listing, or an error if a file could not be read.
    pub(super) fn complete(self) -> Result<Self, StorageError> {
        match self.unread {
            None => Ok(self),
            Some(Unread { path, error }) => Err(failed("read", &path)(error)),
        }
    }
}

/// A file that differs from its original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    /// The path relative to the root file system.
    pub(crate) path: PathBuf,
    /// A phrase whose subject is the file.
    pub(crate) what: String,
}

/// Receives the entries of a listing, in order.
pub(super) type Each<'a> = dyn FnMut(&Path, &str) -> io::Result<()> + 'a;

/// Lists `root`, whose owners are in the range `ids`.
pub(super) fn list(root: &Path, ids: GuestIds) -> Result<Listing, StorageError> {
    list_each(root, ids, &mut |_, _| Ok(()))
}

/// Lists `root`, and writes `files.list` to the new file `to`.
pub(super) fn list_into(root: &Path, ids: GuestIds, to: &Path) -> Result<Listing, StorageError> {
    let file = File::create_new(to).map_err(failed("write", to))?;
    let mut out = BufWriter::new(file);
    writeln!(out, "{HEAD}").map_err(failed("write", to))?;
    let listing = list_each(root, ids, &mut |path, print| writeln!(out, "{print} {}", escaped(path)))?;
    writeln!(out, "{END}").map_err(failed("write", to))?;
    let file = out.into_inner().map_err(|error| failed("write", to)(error.into_error()))?;
    file.sync_all().map_err(failed("write", to))?;
    Ok(listing)
}

/// Lists `root`, and returns the entries that differ from the `files.list` at `known`; none if that
/// file is incomplete.
pub(super) fn compare(root: &Path, ids: GuestIds, known: &Path) -> Result<(Listing, Vec<Damage>), StorageError> {
    let mut expected = FilesList::open(known)?;
    let mut found = Vec::new();
    let mut lines = expected.by_ref().peekable();
    let mut listing = list_each(root, ids, &mut |path, print| {
        hold_against(&mut lines, path, print, &mut found);
        Ok(())
    })?;
    for (path, _) in lines {
        note(&mut found, &path, "is missing");
    }
    if !expected.is_whole {
        found.clear();
    }
    // A file that cannot be read differs from its original, too.
    found.retain(|damage| !listing.lost.iter().any(|lost| lost.path == damage.path));
    found.splice(0..0, listing.lost.drain(..));
    Ok((listing, found))
}

fn hold_against(
    expected: &mut Peekable<impl Iterator<Item = (PathBuf, String)>>,
    path: &Path,
    print: &str,
    found: &mut Vec<Damage>,
) {
    while let Some((missing, _)) = expected.next_if(|(known, _)| known.as_path() < path) {
        note(found, &missing, "is missing");
    }
    match expected.next_if(|(known, _)| known == path) {
        Some((_, known)) if known == print => {}
        Some(_) => note(found, path, "differs from the imported file"),
        None => note(found, path, "was not imported"),
    }
}

fn note(found: &mut Vec<Damage>, path: &Path, what: &str) {
    if found.len() < NAMED_MAX {
        found.push(Damage { path: path.to_owned(), what: what.to_owned() });
    }
}

/// The entries of a `files.list`, in order, as far as they can be read.
pub(super) struct FilesList {
    lines: io::Lines<BufReader<File>>,
    /// Whether its last line was read.
    pub(super) is_whole: bool,
    is_over: bool,
}

impl FilesList {
    pub(super) fn open(path: &Path) -> Result<Self, StorageError> {
        let file = File::open(path).map_err(failed("open", path))?;
        let mut lines = BufReader::new(file).lines();
        match lines.next() {
            Some(Ok(head)) if head == HEAD => Ok(Self { lines, is_whole: false, is_over: false }),
            Some(Err(error)) => Err(failed("read", path)(error)),
            Some(Ok(_)) | None => Err(failed("read", path)(io::Error::other("not a list of files"))),
        }
    }
}

impl Iterator for FilesList {
    type Item = (PathBuf, String);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let entry = match self.lines.next() {
            Some(Ok(line)) if line == END => {
                self.is_whole = true;
                None
            }
            Some(Ok(line)) => line.split_once(' ').and_then(|(print, name)| Some((unescaped(name)?, print.to_owned()))),
            Some(Err(_)) | None => None,
        };
        self.is_over = entry.is_none();
        entry
    }
}

/// Encodes a path on one line: characters that are not plain are `%` and two digits.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | 0..=b' ' | 127.. => text.push_str(&format!("%{byte:02x}")),
            plain => text.push(char::from(*plain)),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = text.bytes();
    let mut path = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    Some(std::ffi::OsString::from_vec(path).into())
}

pub(super) fn list_each(root: &Path, ids: GuestIds, each: &mut Each<'_>) -> Result<Listing, StorageError> {
    let mut state = State {
        hasher: Hasher::new_derive_key(CONTEXT),
        links: HashMap::new(),
        bytes: 0,
        files: 0,
        ids,
        lost: Vec::new(),
        unread: None,
        each,
    };
    // Depth first, children sorted by name.
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let path = root.join(&relative);
        let facts = path.symlink_metadata().map_err(failed("read the metadata of", &path))?;
        state.add(&path, &relative, &facts)?;
        if facts.is_dir() {
            let mut children = Vec::new();
            for entry in fs::read_dir(&path).map_err(failed("list", &path))? {
                children.push(relative.join(entry.map_err(failed("list", &path))?.file_name()));
            }
            children.sort_unstable_by(|a, b| b.as_os_str().as_bytes().cmp(a.as_os_str().as_bytes()));
            open.append(&mut children);
        }
    }
    let hex = state.hasher.finalize().to_hex().to_string();
    let digest = hex.parse().map_err(|error| failed("name", root)(io::Error::other(error)))?;
    Ok(Listing { digest, bytes: state.bytes, files: state.files, lost: state.lost, unread: state.unread })
}

struct State<'a, 'b> {
    hasher: Hasher,
    /// The first path of each file with several names.
    links: HashMap<(u64, u64), PathBuf>,
    bytes: u64,
    files: u64,
    ids: GuestIds,
    lost: Vec<Damage>,
    unread: Option<Unread>,
    each: &'a mut Each<'b>,
}

impl State<'_, '_> {
    fn add(&mut self, path: &Path, relative: &Path, facts: &Metadata) -> Result<(), StorageError> {
        self.files += 1;
        let mut head = Vec::new();
        field(&mut head, relative.as_os_str().as_bytes());
        self.hasher.update(&head);
        let record = self.record(path, relative, facts)?;
        self.hasher.update(&record);
        (self.each)(relative, blake3::hash(&record).to_hex().as_str()).map_err(failed("list", path))
    }

    /// Returns what the listing contains about an entry, beside its path.
    fn record(&mut self, path: &Path, relative: &Path, facts: &Metadata) -> Result<Vec<u8>, StorageError> {
        let mut record = Vec::new();
        let kind = facts.file_type();
        if kind.is_file() && facts.nlink() > 1 {
            if let Some(first) = self.links.get(&(facts.dev(), facts.ino())) {
                record.push(b'h');
                field(&mut record, first.as_os_str().as_bytes());
                return Ok(record);
            }
            self.links.insert((facts.dev(), facts.ino()), relative.to_owned());
        }
        let mode = if kind.is_symlink() { 0 } else { facts.mode() & 0o7777 };
        for number in [mode, facts.uid().wrapping_sub(self.ids.base()), facts.gid().wrapping_sub(self.ids.base())] {
            record.extend(number.to_le_bytes());
        }
        if kind.is_symlink() {
            record.push(b'l');
            let target = fs::read_link(path).map_err(failed("read the link", path))?;
            field(&mut record, target.as_os_str().as_bytes());
        } else if kind.is_dir() {
            record.push(b'd');
        } else if kind.is_file() {
            record.push(b'f');
            let file = File::open(path).map_err(failed("open", path))?;
            match hash_file(&file, facts.len()) {
                Ok(hash) => record.extend(hash.as_bytes()),
                // Without a hash, the digest differs.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.lost.push(Damage { path: relative.to_owned(), what: format!("cannot be read ({error})") });
                }
                Err(error) if is_unread(&error) => {
                    self.unread.get_or_insert(Unread { path: path.to_owned(), error });
                }
                Err(error) => return Err(failed("hash", path)(error)),
            }
            field(&mut record, &capability(&file, self.ids));
            self.bytes += facts.len();
        } else {
            // A pipe; nothing else is ever written into an image.
            record.push(b'p');
            record.extend(facts.rdev().to_le_bytes());
        }
        Ok(record)
    }
}

/// Adds text of any length unambiguously.
fn field(record: &mut Vec<u8>, text: &[u8]) {
    record.extend((text.len() as u64).to_le_bytes());
    record.extend(text);
}

/// Returns the value of `security.capability` as guests see it; empty if there is none.
pub(super) fn capability(file: &File, ids: GuestIds) -> Vec<u8> {
    let mut value = [0u8; 64];
    match rustix::fs::fgetxattr(file, capability::NAME, &mut value[..]) {
        Ok(length) => capability::unbound(value[..length].to_vec(), ids),
        Err(_) => Vec::new(),
    }
}
