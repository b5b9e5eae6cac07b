//! The digest of an image: BLAKE3 over a listing of all that is in it, which depends on nothing else.
//!
//! Read from the disk after everything is written, so that it says what is there and not what a source promised.
//! Times are left out: two builds of one thing are one image. Changing the listing gives every image another name;
//! it is version 1 for ever.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blake3::Hasher;
use dorm_lifecycle::Digest;

use super::tree::CAPABILITY;
use crate::error::{PoolError, failed};
use crate::hashing::hash_file;

const CONTEXT: &str = "Dormouse image listing, version 1";

pub(super) struct Listing {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// Lists `root`, whose owners are shifted by `id_base`.
pub(super) fn list(root: &Path, id_base: u32) -> Result<Listing, PoolError> {
    let mut state =
        State { hasher: Hasher::new_derive_key(CONTEXT), links: HashMap::new(), bytes: 0, files: 0, id_base };
    // Depth first, children in the order of their names.
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let path = root.join(&relative);
        let facts = path.symlink_metadata().map_err(failed("look at", &path))?;
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
    Ok(Listing { digest, bytes: state.bytes, files: state.files })
}

struct State {
    hasher: Hasher,
    /// Where a file with several names was met first.
    links: HashMap<(u64, u64), PathBuf>,
    bytes: u64,
    files: u64,
    id_base: u32,
}

impl State {
    fn add(&mut self, path: &Path, relative: &Path, facts: &Metadata) -> Result<(), PoolError> {
        self.files += 1;
        self.field(relative.as_os_str().as_bytes());
        let kind = facts.file_type();
        if kind.is_file() && facts.nlink() > 1 {
            if let Some(first) = self.links.get(&(facts.dev(), facts.ino())) {
                let first = first.clone();
                self.hasher.update(b"h");
                self.field(first.as_os_str().as_bytes());
                return Ok(());
            }
            self.links.insert((facts.dev(), facts.ino()), relative.to_owned());
        }
        let mode = if kind.is_symlink() { 0 } else { facts.mode() & 0o7777 };
        for number in [mode, facts.uid().wrapping_sub(self.id_base), facts.gid().wrapping_sub(self.id_base)] {
            self.hasher.update(&number.to_le_bytes());
        }
        if kind.is_symlink() {
            self.hasher.update(b"l");
            let target = fs::read_link(path).map_err(failed("read the link", path))?;
            self.field(target.as_os_str().as_bytes());
        } else if kind.is_dir() {
            self.hasher.update(b"d");
        } else if kind.is_file() {
            self.hasher.update(b"f");
            let file = File::open(path).map_err(failed("open", path))?;
            let hash = hash_file(&file, facts.len()).map_err(failed("hash", path))?;
            self.hasher.update(hash.as_bytes());
            self.field(&capability(&file));
            self.bytes += facts.len();
        } else {
            // A pipe; nothing else is ever written into an image.
            self.hasher.update(b"p");
            self.hasher.update(&facts.rdev().to_le_bytes());
        }
        Ok(())
    }

    /// Text of any length, so that no two listings look the same.
    fn field(&mut self, text: &[u8]) {
        self.hasher.update(&(text.len() as u64).to_le_bytes());
        self.hasher.update(text);
    }
}

/// The value of `security.capability`; empty where there is none.
pub(super) fn capability(file: &File) -> Vec<u8> {
    let mut value = [0u8; 64];
    match rustix::fs::fgetxattr(file, CAPABILITY, &mut value[..]) {
        Ok(length) => value[..length].to_vec(),
        Err(_) => Vec::new(),
    }
}
