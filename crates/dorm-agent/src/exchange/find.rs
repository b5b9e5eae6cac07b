//! Finds the processes that have deleted files of volumes open or mapped.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::Trouble;

const DELETED: &[u8] = b" (deleted)";

/// An open file that is deleted.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) process: Pid,
    pub(super) descriptor: RawFd,
    /// Its former path.
    pub(super) path: PathBuf,
}

/// The deleted files of a process.
pub(super) enum Found {
    Opens(Vec<Open>),
    /// One is mapped; its former path.
    Mapped(PathBuf),
}

/// Returns the devices of the volumes.
pub(super) fn devices(volumes: &[PathBuf]) -> BTreeSet<u64> {
    volumes.iter().filter_map(|path| Some(fs::metadata(path).ok()?.dev())).collect()
}

/// Returns the open deleted files of all processes except the agent and this one.
pub(super) fn everywhere(devices: &BTreeSet<u64>) -> Result<Vec<Open>, Trouble> {
    let own = [rustix::process::getpid(), rustix::process::getppid().unwrap_or(Pid::INIT)];
    let mut opens = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw).filter(|process| !own.contains(process)) else { continue };
        match of(process, devices) {
            Found::Opens(found) => opens.extend(found),
            Found::Mapped(path) => {
                let who = name(process);
                return Err(Trouble::new(
                    &path,
                    format!("{who} has mapped it into its memory: have it unmap the file"),
                ));
            }
        }
    }
    Ok(opens)
}

/// Returns the deleted files of one process. A process that has ended has none.
pub(super) fn of(process: Pid, devices: &BTreeSet<u64>) -> Found {
    let home = PathBuf::from(format!("/proc/{}", process.as_raw_pid()));
    let mut opens = Vec::new();
    for entry in fs::read_dir(home.join("fd")).into_iter().flatten().flatten() {
        let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(path) = deleted(&entry.path(), devices) {
            opens.push(Open { process, descriptor, path });
        }
    }
    match mapped(&home, devices) {
        Some(path) => Found::Mapped(path),
        None => Found::Opens(opens),
    }
}

/// Returns the former path of the regular file that a link in /proc refers to, if it is deleted and
/// on one of these devices.
fn deleted(link: &Path, devices: &BTreeSet<u64>) -> Option<PathBuf> {
    let shown = fs::read_link(link).ok()?;
    let before = shown.as_os_str().as_bytes().strip_suffix(DELETED)?;
    let facts = fs::metadata(link).ok()?;
    let is_on_volume = facts.is_file() && devices.contains(&facts.dev());
    // An existing file may have such a name.
    let is_named_so = fs::symlink_metadata(&shown).is_ok_and(|named| named.ino() == facts.ino());
    (is_on_volume && !is_named_so).then(|| PathBuf::from(std::ffi::OsString::from_vec(before.to_vec())))
}

fn mapped(home: &Path, devices: &BTreeSet<u64>) -> Option<PathBuf> {
    let maps = fs::read(home.join("maps")).ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let path = line.strip_suffix(DELETED)?;
        let mut words = path.splitn(6, |byte| *byte == b' ');
        let device = std::str::from_utf8(words.nth(3)?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let (major, minor) = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let path = words.nth(1)?.trim_ascii_start();
        devices
            .contains(&rustix::fs::makedev(major, minor))
            .then(|| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())))
    })
}

/// Returns a description of a process for people.
pub(super) fn name(process: Pid) -> String {
    let number = process.as_raw_pid();
    let command = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    format!("process {number} ({})", command.trim_end())
}
