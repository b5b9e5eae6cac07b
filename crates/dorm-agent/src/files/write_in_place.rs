//! Writes into files in place: the inode stays, also for programs that have the file open or watch
//! it.
//!
//! Readers may see a part of the data. A write that is cancelled or fails leaves what it has
//! written so far.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use dorm_agent_proto::{Account, Answer, End, Failure, FileStat, GuestPath, Parents, WriteAt, WriteOptions};
use rustix::fs::OFlags;

use super::make::make_missing;
use super::stat::describe;
use super::write::{MODE, resolve};
use crate::call::Call;
use crate::channel::Received;
use crate::link::Gone;
use crate::users::Users;
use crate::{fault, users};

/// How often the file may appear and disappear while it is opened.
const TRIES: usize = 8;

/// Receives bytes until their end and writes each piece as it arrives, then sends the file's
/// description.
pub(crate) fn write_in_place(call: &Call, path: &GuestPath, at: WriteAt, options: &WriteOptions) -> Result<(), Gone> {
    let result = match open(path, at, options) {
        Ok(file) => receive(call, path, file)?,
        Err(failure) => Err(failure),
    };
    call.answer(&result.map(Answer::Stat))
}

fn receive(call: &Call, path: &GuestPath, mut file: File) -> Result<Result<FileStat, Failure>, Gone> {
    let failed = |error: &io::Error| fault::on_path("write", path, error);
    loop {
        match call.receive()? {
            Received::Data(data) => {
                if let Err(error) = file.write_all(&data) {
                    return Ok(Err(failed(&error)));
                }
            }
            Received::End(End::Complete) => {
                let at = file.metadata().map_err(|error| failed(&error));
                return Ok(at.map(|at| describe(path, &at, &Users::read())));
            }
            Received::End(_) => {
                let reason = "the stream ended before the end of the data; what came before it is written".to_owned();
                return Ok(Err(Failure::Invalid { reason }));
            }
        }
    }
}

fn open(path: &GuestPath, at: WriteAt, options: &WriteOptions) -> Result<File, Failure> {
    let failed = |error: io::Error| fault::on_path("write", path, &error);
    if path.as_bytes().ends_with(b"/") {
        return Err(Failure::IsADirectory { path: path.clone() });
    }
    let owner = options.owner.as_ref().map(users::account).transpose()?;
    let target = resolve(path.as_path()).map_err(failed)?;
    let mut file = open_or_create(path, &target, at, options, owner.as_ref())?;
    match at {
        WriteAt::Emptied | WriteAt::End => {}
        WriteAt::Offset(offset) => drop(file.seek(SeekFrom::Start(offset)).map_err(failed)?),
    }
    Ok(file)
}

fn open_or_create(
    path: &GuestPath,
    target: &Path,
    at: WriteAt,
    options: &WriteOptions,
    owner: Option<&Account>,
) -> Result<File, Failure> {
    let failed = |error: io::Error| fault::on_path("write", path, &error);
    // Opening a pipe or a device must not block.
    let not_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut opening = OpenOptions::new();
    opening.write(true).append(at == WriteAt::End).custom_flags(not_waiting);
    let mut tries = 0..TRIES;
    loop {
        tries.next().ok_or_else(|| fault::other("write", path.as_bytes(), "it is created and removed all the time"))?;
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => return Err(Failure::IsADirectory { path: path.clone() }),
            Ok(found) if !found.is_file() => return Err(Failure::NotAFile { path: path.clone() }),
            Ok(_) => match opening.open(target) {
                Ok(file) => return take_over(path, file, at, options, owner),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if options.parents == Parents::Create {
                    drop(make_missing(target.parent().unwrap_or(Path::new("/")), owner).map_err(failed)?);
                }
                let mode = options.mode.unwrap_or(MODE) & 0o7777;
                match opening.clone().create_new(true).mode(mode).open(target) {
                    Ok(file) => return adjust(&file, Some(mode), owner).map(|()| file).map_err(failed),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Prepares an existing file.
fn take_over(
    path: &GuestPath,
    file: File,
    at: WriteAt,
    options: &WriteOptions,
    owner: Option<&Account>,
) -> Result<File, Failure> {
    let failed = |error: io::Error| fault::on_path("write", path, &error);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Failure::NotAFile { path: path.clone() });
    }
    adjust(&file, options.mode, owner).map_err(failed)?;
    if at == WriteAt::Emptied {
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// Sets owner and mode where they differ: each change is an event for watchers.
fn adjust(file: &File, mode: Option<u32>, owner: Option<&Account>) -> io::Result<()> {
    let before = file.metadata()?;
    if let Some(owner) = owner
        && (before.uid(), before.gid()) != (owner.uid, owner.gid)
    {
        fchown(file, Some(owner.uid), Some(owner.gid))?;
    }
    match mode {
        Some(mode) if file.metadata()?.mode() & 0o7777 != mode & 0o7777 => {
            file.set_permissions(Permissions::from_mode(mode & 0o7777))
        }
        _ => Ok(()),
    }
}
