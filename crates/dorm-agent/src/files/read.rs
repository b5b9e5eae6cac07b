//! Reads files and lists directories, no faster than the host accepts the data.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;

use dorm_agent_proto::frame::PAYLOAD_MAX;
use dorm_agent_proto::{
    Answer, DetailedEntry, End, Entry, Event, Failure, FileKind, FileStat, GuestPath, GuestString, LinkTarget,
};
use rustix::fs::OFlags;

use super::attributes::attributes;
use super::stat::{describe, kind_of, stat};
use crate::call::Call;
use crate::fault;
use crate::link::Gone;
use crate::users::Users;

/// Sends the file's description, then its bytes.
pub(crate) fn read(call: &Call, path: &GuestPath, offset: u64, length: Option<u64>) -> Result<(), Gone> {
    let (mut file, stat) = match open(path, offset) {
        Ok(open) => open,
        Err(failure) => return call.answer(&Err(failure)),
    };
    call.answer(&Ok(Answer::Stat(stat)))?;
    let mut rest = length.unwrap_or(u64::MAX);
    let mut buffer = vec![0; PAYLOAD_MAX];
    let end = loop {
        let most = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            break End::Complete;
        }
        call.wait_credit()?;
        match file.read(&mut buffer[..most]) {
            Ok(0) => break End::Complete,
            Ok(read) => {
                call.data(&buffer[..read])?;
                rest -= read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break End::Failed(fault::on_path("read", path, &error)),
        }
    };
    call.end(&end)
}

fn open(path: &GuestPath, offset: u64) -> Result<(File, FileStat), Failure> {
    let failed = |error: io::Error| fault::on_path("read", path, &error);
    // Opening a pipe or a device must not block.
    let not_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = OpenOptions::new().read(true).custom_flags(not_waiting).open(path.as_path()).map_err(failed)?;
    let at = file.metadata().map_err(failed)?;
    if at.is_dir() {
        return Err(Failure::IsADirectory { path: path.clone() });
    }
    if !at.is_file() {
        return Err(Failure::NotAFile { path: path.clone() });
    }
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    }
    Ok((file, describe(path, &at, &Users::read())))
}

/// Sends the entries of a directory and of its subdirectories, `depth` levels in total.
pub(crate) fn list(call: &Call, path: &GuestPath, depth: u32) -> Result<(), Gone> {
    walk(call, path, depth, |path, stat| Event::Entry(Entry { path, stat }))
}

/// Sends those entries with their attributes; at depth 0, the path itself alone.
pub(crate) fn detail(call: &Call, path: &GuestPath, depth: u32) -> Result<(), Gone> {
    if depth > 0 {
        return walk(call, path, depth, detailed);
    }
    match stat(path) {
        Ok(stat) => {
            call.answer(&Ok(Answer::Follows))?;
            call.event(&detailed(path.clone(), stat))?;
            call.end(&End::Complete)
        }
        Err(failure) => call.answer(&Err(failure)),
    }
}

fn detailed(path: GuestPath, stat: FileStat) -> Event {
    let target = match stat.kind {
        FileKind::Link => target(&path),
        FileKind::File | FileKind::Directory | FileKind::Other => None,
    };
    let attributes = attributes(&path).unwrap_or_default();
    Event::Detailed(DetailedEntry { path, stat, target, attributes })
}

/// Returns what a link leads to; `None` if that does not exist.
fn target(path: &GuestPath) -> Option<LinkTarget> {
    let found = fs::canonicalize(path.as_path()).ok()?;
    let kind = kind_of(&fs::symlink_metadata(&found).ok()?);
    Some(LinkTarget { path: GuestPath::try_from(found.as_path()).ok()?, kind })
}

fn walk(call: &Call, path: &GuestPath, depth: u32, event: impl Fn(GuestPath, FileStat) -> Event) -> Result<(), Gone> {
    let first = match entries(path) {
        Ok(entries) => entries,
        Err(error) => return call.answer(&Err(fault::on_path("list", path, &error))),
    };
    call.answer(&Ok(Answer::Follows))?;
    let users = Users::read();
    // The directories being listed, each with its remaining entries.
    let mut open = vec![first.into_iter()];
    while let Some(level) = open.last_mut() {
        let Some(entry) = level.next() else {
            open.pop();
            continue;
        };
        // An entry that was removed meanwhile is skipped.
        let Ok(at) = fs::symlink_metadata(entry.as_path()) else { continue };
        let stat = describe(&entry, &at, &users);
        call.event(&event(entry.clone(), stat))?;
        if at.is_dir()
            && open.len() < depth as usize
            && let Ok(entries) = entries(&entry)
        {
            open.push(entries.into_iter());
        }
    }
    call.end(&End::Complete)
}

/// Returns the paths in a directory, sorted by name.
pub(super) fn entries(path: &GuestPath) -> io::Result<Vec<GuestPath>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path.as_path())? {
        if let Ok(name) = GuestString::new(entry?.file_name().into_vec()) {
            entries.push(path.join(&name));
        }
    }
    entries.sort();
    Ok(entries)
}
