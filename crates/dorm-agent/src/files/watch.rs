//! Reports changes in a directory to the host.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use dorm_agent_proto::{Answer, Event, Failure, GuestPath, GuestString, Scope, WatchEvent, WatchEventKind};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::read::entries;
use crate::call::Call;
use crate::fault;
use crate::link::Gone;

pub(super) const BUFFER: usize = 16 * 1024;

/// Reports changes until the host cancels the call.
pub(crate) fn watch(call: &Call, path: &GuestPath, scope: Scope) -> Result<(), Gone> {
    let (mut watcher, stop) = match prepare(path, scope) {
        Ok(prepared) => prepared,
        Err(failure) => return call.answer(&Err(failure)),
    };
    let stop = Arc::new(stop);
    let to_stop = Arc::clone(&stop);
    call.on_gone(Box::new(move || {
        let _ = rustix::io::write(&*to_stop, &1_u64.to_ne_bytes());
    }));
    call.answer(&Ok(Answer::Follows))?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut ready = [PollFd::new(&watcher.inotify, PollFlags::IN), PollFd::new(&*stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) if !ready[1].revents().is_empty() => return Err(Gone),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Gone),
        }
        for event in watcher.events(&mut buffer).unwrap_or_default() {
            call.event(&Event::Watch(event))?;
        }
    }
}

pub(super) fn prepare(path: &GuestPath, scope: Scope) -> Result<(Watcher, std::os::fd::OwnedFd), Failure> {
    let failed = |error: io::Error| fault::on_path("watch", path, &error);
    if !fs::metadata(path.as_path()).map_err(failed)?.is_dir() {
        return Err(Failure::NotADirectory { path: path.clone() });
    }
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
    let inotify = Inotify::init().map_err(failed)?;
    let mut watcher = Watcher { inotify, scope, root: path.clone(), directories: HashMap::new() };
    watcher.add(path).map_err(failed)?;
    if scope == Scope::Below {
        watcher.add_below(path);
    }
    Ok((watcher, stop))
}

/// The kernel's view of one watched directory.
pub(super) struct Watcher {
    pub(super) inotify: Inotify,
    pub(super) scope: Scope,
    pub(super) root: GuestPath,
    directories: HashMap<WatchDescriptor, GuestPath>,
}

impl Watcher {
    fn add(&mut self, path: &GuestPath) -> io::Result<()> {
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::DELETE
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::ONLYDIR;
        let descriptor = self.inotify.watches().add(path.as_path(), mask)?;
        self.directories.insert(descriptor, path.clone());
        Ok(())
    }

    /// Watches all directories below one, and returns every path found, which may be newer than the
    /// watch.
    fn add_below(&mut self, path: &GuestPath) -> Vec<GuestPath> {
        let mut found = Vec::new();
        let mut open = vec![path.clone()];
        while let Some(directory) = open.pop() {
            for entry in entries(&directory).unwrap_or_default() {
                found.push(entry.clone());
                let is_directory = fs::symlink_metadata(entry.as_path()).is_ok_and(|at| at.is_dir());
                // A directory that was removed, or that exceeds the limit of watches, is skipped.
                if is_directory && self.add(&entry).is_ok() {
                    open.push(entry);
                }
            }
        }
        found
    }

    /// Reads once; `None` if the kernel has no changes now.
    pub(super) fn events(&mut self, buffer: &mut [u8]) -> Option<Vec<WatchEvent>> {
        let seen: Vec<_> = match self.inotify.read_events(buffer) {
            Ok(events) => events.map(|event| event.to_owned()).collect(),
            Err(_) => return None,
        };
        let mut events = Vec::new();
        for event in seen {
            if event.mask.contains(EventMask::Q_OVERFLOW) {
                events.push(WatchEvent { kind: WatchEventKind::Overflow, path: self.root.clone() });
            }
            if event.mask.contains(EventMask::IGNORED) {
                self.directories.remove(&event.wd);
                continue;
            }
            let (Some(directory), Some(kind)) = (self.directories.get(&event.wd), kind(event.mask)) else { continue };
            let Some(name) = event.name.and_then(|name| GuestString::new(name.as_bytes()).ok()) else { continue };
            let path = directory.join(&name);
            events.push(WatchEvent { kind, path: path.clone() });
            if self.scope == Scope::Below && event.mask.contains(EventMask::ISDIR) {
                self.follow_directory(kind, &path, &mut events);
            }
        }
        Some(events)
    }

    fn follow_directory(&mut self, kind: WatchEventKind, path: &GuestPath, events: &mut Vec<WatchEvent>) {
        match kind {
            WatchEventKind::Created | WatchEventKind::MovedTo if self.add(path).is_ok() => {
                // Entries created before the directory was watched have caused no event.
                let found = self.add_below(path).into_iter();
                events.extend(found.map(|path| WatchEvent { kind: WatchEventKind::Created, path }));
            }
            WatchEventKind::MovedFrom => {
                let mut below = path.as_bytes().to_vec();
                below.push(b'/');
                let left: Vec<_> = self
                    .directories
                    .iter()
                    .filter(|(_, at)| *at == path || at.as_bytes().starts_with(&below))
                    .map(|(descriptor, _)| descriptor.clone())
                    .collect();
                for descriptor in left {
                    self.directories.remove(&descriptor);
                    drop(self.inotify.watches().remove(descriptor));
                }
            }
            _ => {}
        }
    }
}

fn kind(mask: EventMask) -> Option<WatchEventKind> {
    let kinds = [
        (EventMask::CREATE, WatchEventKind::Created),
        (EventMask::MODIFY, WatchEventKind::Modified),
        (EventMask::ATTRIB, WatchEventKind::Attributes),
        (EventMask::DELETE, WatchEventKind::Removed),
        (EventMask::MOVED_FROM, WatchEventKind::MovedFrom),
        (EventMask::MOVED_TO, WatchEventKind::MovedTo),
    ];
    kinds.into_iter().find(|(bit, _)| mask.contains(*bit)).map(|(_, kind)| kind)
}
