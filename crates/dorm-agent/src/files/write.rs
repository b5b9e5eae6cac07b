//! Writes files atomically: readers see the old or the new content, never a part.
//!
//! The bytes go to a hidden file beside the target, which is renamed at the end. A cancelled write
//! leaves nothing. If the agent dies in between, the hidden file stays and the target is unchanged.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use dorm_agent_proto::{Account, Answer, End, Failure, FileStat, GuestPath, Parents, WriteOptions};
use rustix::io::Errno;

use super::make::make_missing;
use super::stat::stat;
use crate::call::Call;
use crate::channel::Received;
use crate::link::Gone;
use crate::{fault, random, users};

/// The permission bits of a new file.
pub(super) const MODE: u32 = 0o644;
const LINKS_MAX: usize = 40;

/// How often a name for the hidden file is looked for that no other file has.
const TRIES: usize = 8;

/// Receives bytes until their end, then sends the new file's description.
pub(crate) fn write(call: &Call, path: &GuestPath, options: &WriteOptions) -> Result<(), Gone> {
    let result = match Draft::begin(path, options) {
        Ok(draft) => receive(call, path, draft)?,
        Err(failure) => Err(failure),
    };
    call.answer(&result.map(Answer::Stat))
}

fn receive(call: &Call, path: &GuestPath, mut draft: Draft) -> Result<Result<FileStat, Failure>, Gone> {
    loop {
        match call.receive()? {
            Received::Data(data) => {
                if let Err(error) = draft.file.write_all(&data) {
                    return Ok(Err(fault::on_path("write", path, &error)));
                }
            }
            Received::End(End::Complete) => {
                let finished = draft.finish().map_err(|error| fault::on_path("write", path, &error));
                return Ok(finished.and_then(|()| stat(path)));
            }
            Received::End(_) => {
                return Ok(Err(Failure::Invalid { reason: "the stream ended before the end of the file".to_owned() }));
            }
        }
    }
}

struct Draft {
    file: File,
    hidden: Hidden,
    target: PathBuf,
}

/// The path of the hidden file, which is removed when this is dropped, unless it was renamed.
struct Hidden(Option<PathBuf>);

impl Draft {
    fn begin(path: &GuestPath, options: &WriteOptions) -> Result<Self, Failure> {
        let failed = |error: io::Error| fault::on_path("write", path, &error);
        if path.as_bytes().ends_with(b"/") {
            return Err(Failure::IsADirectory { path: path.clone() });
        }
        let owner = options.owner.as_ref().map(users::account).transpose()?;
        let target = resolve(path.as_path()).map_err(failed)?;
        let before = match fs::metadata(&target) {
            Ok(at) if at.is_dir() => return Err(Failure::IsADirectory { path: path.clone() }),
            Ok(at) if !at.is_file() => return Err(Failure::NotAFile { path: path.clone() }),
            Ok(at) => Some(at),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let directory = target.parent().unwrap_or(Path::new("/"));
        if options.parents == Parents::Create {
            drop(make_missing(directory, owner.as_ref()).map_err(failed)?);
        }
        let (file, hidden) = create_hidden(directory).map_err(failed)?;
        let draft = Self { file, hidden, target };
        let (uid, gid) = match (&owner, &before) {
            (Some(Account { uid, gid, .. }), _) => (*uid, *gid),
            (None, Some(before)) => (before.uid(), before.gid()),
            (None, None) => (0, 0),
        };
        fchown(&draft.file, Some(uid), Some(gid)).map_err(failed)?;
        let mode = options.mode.or(before.map(|before| before.mode())).unwrap_or(MODE) & 0o7777;
        draft.file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        Ok(draft)
    }

    fn finish(mut self) -> io::Result<()> {
        let Some(hidden) = &self.hidden.0 else { return Ok(()) };
        match fs::rename(hidden, &self.target) {
            // A file that is a mount point cannot be replaced, only overwritten.
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                fs::copy(hidden, &self.target).map(|_| ())
            }
            Ok(()) => {
                // The name is free, and another sandbox may have taken it on a shared volume.
                self.hidden.0 = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            drop(fs::remove_file(path));
        }
    }
}

/// Creates a hidden file under a name that no other sandbox with this directory uses. A fork has a
/// copy of all memory of its source, so the name comes from the kernel.
fn create_hidden(directory: &Path) -> io::Result<(File, Hidden)> {
    let mut tries = 0;
    loop {
        let path = directory.join(format!(".dorm-{}.part", random::text()?));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, Hidden(Some(path)))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Follows links at the end of the path, even one to a missing file: the target is written.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(link) => path = path.parent().unwrap_or(Path::new("/")).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::LOOP.into())
}
