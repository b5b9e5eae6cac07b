//! Reads that are repeated once. A cable, a controller or a network disk may fail one read and
//! answer the next, so an I/O error is no proof that the data is lost.

use std::fs::File;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

/// The pause before a read is repeated.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 100 });

/// Returns what `read` returns, or what it returns the second time if the disk reports an I/O
/// error. It must read the same data again.
pub(crate) fn twice<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut once = || planned_fault().map_or_else(&mut read, Err);
    match once() {
        Err(error) if is_unread(&error) => {
            tracing::warn!(%error, "the disk failed a read; repeating it");
            thread::sleep(PAUSE);
            once()
        }
        result => result,
    }
}

/// Whether the disk could not read the data, which says nothing about it.
pub(crate) fn is_unread(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// A file whose reads are repeated.
pub(crate) struct Reread(pub(crate) File);

impl Read for Reread {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        twice(|| self.0.read(buffer))
    }
}

#[cfg(not(test))]
fn planned_fault() -> Option<io::Error> {
    None
}

#[cfg(test)]
fn planned_fault() -> Option<io::Error> {
    let left = FAULTS.get().checked_sub(1)?;
    FAULTS.set(left);
    Some(rustix::io::Errno::IO.into())
}

#[cfg(test)]
thread_local! {
    static FAULTS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Fails the next `count` reads of this thread. Returns how many of an earlier call are left.
#[cfg(test)]
pub(crate) fn fail(count: u32) -> u32 {
    FAULTS.replace(count)
}
