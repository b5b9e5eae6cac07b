//! Copies of deleted files on the sandbox's own disk, which are deleted as well.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid};

/// How much is copied at once.
const PIECE: usize = 1 << 20;

/// A descriptor received from a process.
pub(super) struct Taken {
    file: File,
    facts: Stat,
    flags: OFlags,
    offset: u64,
}

impl Taken {
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let facts = rustix::fs::fstat(&descriptor)?;
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        let offset = rustix::fs::seek(&descriptor, SeekFrom::Current(0))?;
        Ok(Self { file: File::from(descriptor), facts, flags, offset })
    }

    fn is_same_file(&self, other: &Self) -> bool {
        (self.facts.st_dev, self.facts.st_ino) == (other.facts.st_dev, other.facts.st_ino)
    }

    /// Returns whether both share one offset: if one is moved, the other has moved.
    fn shares(&self, other: &Self) -> io::Result<bool> {
        if !self.is_same_file(other) || self.offset != other.offset {
            return Ok(false);
        }
        let elsewhere = self.offset.wrapping_add(1) & (u64::MAX >> 1);
        rustix::fs::seek(&self.file, SeekFrom::Start(elsewhere))?;
        let found = rustix::fs::seek(&other.file, SeekFrom::Current(0));
        rustix::fs::seek(&self.file, SeekFrom::Start(self.offset))?;
        Ok(found? == elsewhere)
    }

    fn can_read(&self) -> bool {
        matches!(self.flags & OFlags::RWMODE, OFlags::RDONLY | OFlags::RDWR)
    }
}

/// The copy for each descriptor that was taken.
pub(super) struct Copies {
    made: Vec<OwnedFd>,
    which: Vec<usize>,
}

impl Copies {
    /// Copies the files into `directory`. An error contains the index of its descriptor.
    pub(super) fn make(taken: &[Taken], directory: &Path) -> Result<Self, (usize, io::Error)> {
        let mut copies = Self { made: Vec::new(), which: vec![usize::MAX; taken.len()] };
        for (number, one) in taken.iter().enumerate() {
            if copies.which[number] == usize::MAX {
                copies.copy(one, taken, directory).map_err(|error| (number, error))?;
            }
        }
        Ok(copies)
    }

    /// Returns the copy for a descriptor.
    pub(super) fn of(&self, number: usize) -> &OwnedFd {
        &self.made[self.which[number]]
    }

    /// Copies one file, for all its descriptors.
    fn copy(&mut self, first: &Taken, taken: &[Taken], directory: &Path) -> io::Result<()> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let path = directory.join(format!(".dorm-kept-{:016x}", u64::from_ne_bytes(random)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        let opened = fill(&copy, first, taken).and_then(|()| self.open(&path, first, taken));
        rustix::fs::unlink(&path)?;
        opened?;
        let facts = &first.facts;
        rustix::fs::fchown(&copy, Some(Uid::from_raw(facts.st_uid)), Some(Gid::from_raw(facts.st_gid)))?;
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(facts.st_mode & 0o7777))?;
        let time =
            |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: i64::try_from(nanoseconds).unwrap_or(0) };
        let times = Timestamps {
            last_access: time(facts.st_atime, facts.st_atime_nsec),
            last_modification: time(facts.st_mtime, facts.st_mtime_nsec),
        };
        Ok(rustix::fs::futimens(&copy, &times)?)
    }

    fn open(&mut self, path: &Path, first: &Taken, taken: &[Taken]) -> io::Result<()> {
        let kept = OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME;
        for (number, one) in taken.iter().enumerate().filter(|(_, one)| one.is_same_file(first)) {
            let mut before = None;
            for (earlier, other) in taken[..number].iter().enumerate() {
                if other.shares(one)? {
                    before = Some(self.which[earlier]);
                    break;
                }
            }
            self.which[number] = match before {
                Some(before) => before,
                None => {
                    let opened = rustix::fs::open(path, (one.flags & kept) | OFlags::CLOEXEC, Mode::empty())?;
                    rustix::fs::seek(&opened, SeekFrom::Start(one.offset))?;
                    self.made.push(opened);
                    self.made.len() - 1
                }
            };
        }
        Ok(())
    }
}

/// Copies the content. If no descriptor may read it, no process can ever see the content, so only
/// the length is kept.
fn fill(copy: &File, first: &Taken, taken: &[Taken]) -> io::Result<()> {
    copy.set_len(first.facts.st_size.unsigned_abs())?;
    let Some(source) = taken.iter().find(|one| one.is_same_file(first) && one.can_read()) else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let read = source.file.read_at(&mut piece, at)?;
        if read == 0 {
            return Ok(());
        }
        // Holes stay holes.
        if piece[..read].iter().any(|byte| *byte != 0) {
            copy.write_all_at(&piece[..read], at)?;
        }
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    fn taken(file: &File) -> Taken {
        Taken::new(OwnedFd::from(file.try_clone().unwrap())).unwrap()
    }

    #[test]
    fn copies_have_what_the_files_had_and_share_what_they_shared() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("scratch");
        let options = || fs::File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (mut first, other) = (options(), options());
        first.write_all(b"hello").unwrap();
        let appends = fs::File::options().append(true).open(&path).unwrap();
        let lonely = fs::File::create(place.path().join("log")).unwrap();
        lonely.set_len(7).unwrap();
        fs::remove_file(&path).unwrap();
        fs::remove_file(place.path().join("log")).unwrap();
        let all = [taken(&first), taken(&first), taken(&other), taken(&appends), taken(&lonely)];
        let copies = Copies::make(&all, place.path()).unwrap_or_else(|(at, error)| panic!("{at}: {error}"));
        let copy = |number: usize| File::from(copies.of(number).try_clone().unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "they are deleted as the others are");
        copy(0).write_all(b" world").unwrap();
        assert_eq!(copy(1).stream_position().unwrap(), 11, "what shared an offset shares it");
        assert_eq!(copy(2).stream_position().unwrap(), 0, "and nobody else");
        copy(3).write_all(b"!").unwrap();
        let mut text = String::new();
        copy(2).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello world!", "what was one file is one file");
        assert!(copy(3).read(&mut [0]).is_err(), "one that only writes only writes");
        assert_eq!(copy(4).metadata().unwrap().len(), 7);
        let mut before = [0; 5];
        first.read_exact_at(&mut before, 0).unwrap();
        assert_eq!((&before, first.metadata().unwrap().len()), (b"hello", 5), "the file itself is as it was");
    }
}
