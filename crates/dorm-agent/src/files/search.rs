//! Searches for files, and for lines in them.
//!
//! A tree is walked without following links, and without recursion. Only a part of the names of a
//! directory is in memory at a time. Only regular files are read, and no file system that makes up
//! its files, such as `/proc`: reading those can have effects, wait, or never end.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use dorm_agent_proto::{
    Answer, BinaryFiles, End, Entry, Event, Failure, GuestPath, GuestString, LineMatch, Matcher, SearchLimit,
    SearchSpec, SearchSummary,
};
use rustix::fs::{CWD, Dir, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;

use super::stat::{describe, kind_of};
use crate::call::Call;
use crate::fault;
use crate::link::Gone;
use crate::users::Users;

/// How many directories are open in one another.
const DEPTH_MAX: usize = 256;
/// How many names of a directory are read, and sorted, at a time.
const NAMES: usize = 1024;
const READ_BYTES: usize = 64 * 1024;
/// How much of a line is searched.
const LINE_MAX: usize = 1 << 20;
/// Where a zero byte makes a file binary.
const BINARY_WITHIN: usize = 8192;
/// How many bytes of paths and lines are sent.
const SIZE_MAX: u64 = 4 << 20;
/// The size of a result besides its path and line.
const RESULT_BYTES: u64 = 256;

/// The file systems that make up their files: proc, sysfs, devpts, cgroup of both versions,
/// debugfs, tracefs, securityfs, mqueue and bpf.
const MADE_UP: [i64; 10] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x1980_0202,
    0xcafe_4a11,
];

/// Sends what a search finds, and how it ended.
pub(crate) fn search(call: &Call, spec: &SearchSpec) -> Result<(), Gone> {
    let begun = Matcher::new(spec).and_then(|matcher| Ok((matcher, Start::find(&spec.path)?)));
    let (matcher, start) = match begun {
        Ok(begun) => begun,
        Err(failure) => return call.answer(&Err(failure)),
    };
    call.answer(&Ok(Answer::Follows))?;
    let mut search = Search {
        call,
        spec,
        matcher,
        users: Users::read(),
        began: Instant::now(),
        buffer: vec![0; READ_BYTES],
        summary: SearchSummary::default(),
        results: 0,
        size: 0,
    };
    match search.run(start) {
        Ok(()) => {}
        Err(Stop::At(limit)) => search.summary.stopped = Some(limit),
        Err(Stop::Gone) => return Err(Gone),
    }
    call.event(&Event::Searched(search.summary))?;
    call.end(&End::Complete)
}

/// Where a search begins.
enum Start {
    Directory(Level),
    File(Metadata),
}

/// A directory that is being searched.
struct Level {
    directory: Dir,
    path: GuestPath,
    device: u64,
    names: std::vec::IntoIter<GuestString>,
    /// Whether all its names are in `names`.
    is_read: bool,
}

/// Why a search ends early.
enum Stop {
    At(SearchLimit),
    Gone,
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

struct Search<'a> {
    call: &'a Call,
    spec: &'a SearchSpec,
    matcher: Matcher,
    users: Users,
    began: Instant,
    buffer: Vec<u8>,
    summary: SearchSummary,
    results: u32,
    size: u64,
}

impl Start {
    fn find(path: &GuestPath) -> Result<Self, Failure> {
        let failed = |error: &io::Error| fault::on_path("search", path, error);
        let at = std::fs::metadata(path.as_path()).map_err(|error| failed(&error))?;
        let made_up =
            || Failure::Invalid { reason: format!("the files in '{path}' are not stored: read them by name") };
        if at.is_file() {
            let directory = path.as_path().parent().unwrap_or(path.as_path());
            let is_stored = openat(CWD, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .is_ok_and(|directory| is_stored(&directory));
            return if is_stored { Ok(Self::File(at)) } else { Err(made_up()) };
        }
        if !at.is_dir() {
            return Err(Failure::NotAFile { path: path.clone() });
        }
        let open = openat(CWD, path.as_path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let open = open.map_err(|error| failed(&error.into()))?;
        if !is_stored(&open) {
            return Err(made_up());
        }
        Ok(Self::Directory(Level::new(open, path.clone(), at.dev()).map_err(|error| failed(&error.into()))?))
    }
}

fn is_stored(directory: &OwnedFd) -> bool {
    fstatfs(directory).is_ok_and(|on| !MADE_UP.contains(&on.f_type))
}

impl Level {
    fn new(open: OwnedFd, path: GuestPath, device: u64) -> Result<Self, Errno> {
        Ok(Self { directory: Dir::new(open)?, path, device, names: Vec::new().into_iter(), is_read: false })
    }

    /// Returns the next name: those that are read together are sorted.
    fn next(&mut self) -> Option<GuestString> {
        if self.names.len() == 0 && !self.is_read {
            let mut names = Vec::new();
            while names.len() < NAMES {
                match self.directory.read() {
                    Some(Ok(entry)) => {
                        let name = entry.file_name().to_bytes();
                        names.extend(GuestString::new(name).ok().filter(|_| name != b"." && name != b".."));
                    }
                    // After an error, the directory may have no end.
                    Some(Err(_)) | None => {
                        self.is_read = true;
                        break;
                    }
                }
            }
            names.sort();
            self.names = names.into_iter();
        }
        self.names.next()
    }
}

impl Search<'_> {
    fn run(&mut self, start: Start) -> Result<(), Stop> {
        let mut open = match start {
            Start::File(at) => return self.meet(&self.spec.path.clone(), &at),
            Start::Directory(level) => vec![level],
        };
        while let Some(level) = open.last_mut() {
            let Some(name) = level.next() else {
                open.pop();
                continue;
            };
            let (path, device) = (level.path.join(&name), level.device);
            let at = match std::fs::symlink_metadata(path.as_path()) {
                Ok(at) => at,
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    self.summary.unreadable += 1;
                    continue;
                }
            };
            self.meet(&path, &at)?;
            if at.is_dir() && self.spec.depth.is_none_or(|depth| open.len() < depth as usize) {
                open.extend(self.enter(path, &at, device, open.len()));
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: GuestPath, at: &Metadata, outer: u64, depth: usize) -> Option<Level> {
        if depth >= DEPTH_MAX {
            self.summary.skipped += 1;
            return None;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(open) = openat(CWD, path.as_path(), flags, Mode::empty()) else {
            self.summary.unreadable += 1;
            return None;
        };
        if at.dev() != outer && !is_stored(&open) {
            self.summary.skipped += 1;
            return None;
        }
        Level::new(open, path, at.dev()).inspect_err(|_| self.summary.unreadable += 1).ok()
    }

    /// Looks at a file or directory.
    fn meet(&mut self, path: &GuestPath, at: &Metadata) -> Result<(), Stop> {
        self.check()?;
        if self.summary.entries >= self.spec.limits.entries {
            return Err(Stop::At(SearchLimit::Entries));
        }
        self.summary.entries += 1;
        if !self.matcher.takes(self.below(path), kind_of(at)) {
            return Ok(());
        }
        if self.matcher.wants_lines() {
            return self.look_into(path);
        }
        self.count(path.as_bytes().len() as u64 + RESULT_BYTES)?;
        let stat = describe(path, at, &self.users);
        Ok(self.call.event(&Event::Entry(Entry { path: path.clone(), stat }))?)
    }

    /// Returns the path below the directory of the search.
    fn below<'p>(&self, path: &'p GuestPath) -> &'p [u8] {
        let (path, start) = (path.as_bytes(), self.spec.path.as_bytes());
        match path.strip_prefix(start) {
            Some(below) if !below.is_empty() => below.strip_prefix(b"/").unwrap_or(below),
            // The search is of one file.
            _ => path.rsplit(|byte| *byte == b'/').next().unwrap_or(path),
        }
    }

    /// Ends the search of a caller that has left, and at the time limit.
    fn check(&self) -> Result<(), Stop> {
        self.call.has_credit()?;
        match self.began.elapsed() >= Duration::from_millis(self.spec.limits.time_ms) {
            true => Err(Stop::At(SearchLimit::Time)),
            false => Ok(()),
        }
    }

    /// Counts a result with so many bytes before it is sent.
    fn count(&mut self, bytes: u64) -> Result<(), Stop> {
        let size = self.size + bytes;
        if self.results >= self.spec.limits.results {
            return Err(Stop::At(SearchLimit::Results));
        }
        if size > SIZE_MAX {
            return Err(Stop::At(SearchLimit::Size));
        }
        (self.results, self.size) = (self.results + 1, size);
        Ok(())
    }

    fn look_into(&mut self, path: &GuestPath) -> Result<(), Stop> {
        // A pipe or device that is there by now must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        // A search of one file may be told its name through a link.
        let flags = if *path == self.spec.path { flags - OFlags::NOFOLLOW } else { flags };
        let file = openat(CWD, path.as_path(), flags, Mode::empty()).map(File::from);
        let mut file = match file {
            Ok(file) if file.metadata().is_ok_and(|at| at.is_file()) => file,
            Ok(_) | Err(_) => {
                self.summary.unreadable += 1;
                return Ok(());
            }
        };
        let binary = self.spec.lines.as_ref().map_or(BinaryFiles::Skip, |lines| lines.binary);
        let (mut lines, mut is_first) = (Lines::default(), true);
        loop {
            self.check()?;
            let left = usize::try_from(self.spec.limits.bytes - self.summary.bytes).unwrap_or(usize::MAX);
            if left == 0 {
                return Err(Stop::At(SearchLimit::Bytes));
            }
            let most = left.min(self.buffer.len());
            let length = match file.read(&mut self.buffer[..most]) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.summary.unreadable += 1;
                    return Ok(());
                }
            };
            self.summary.bytes += length as u64;
            let read = &self.buffer[..length];
            if std::mem::take(&mut is_first)
                && binary == BinaryFiles::Skip
                && read[..length.min(BINARY_WITHIN)].contains(&0)
            {
                self.summary.binary += 1;
                return Ok(());
            }
            // More than can be sent is not kept.
            let (mut found, mut size) = (Vec::new(), 0);
            let mut match_line = |number, line: &[u8]| {
                if size <= SIZE_MAX
                    && let Some(line) = self.matcher.line(path, number, line)
                {
                    size += size_of(&line);
                    found.push(line);
                }
            };
            match length {
                0 => lines.end(&mut match_line),
                _ => lines.push(read, &mut match_line),
            }
            for line in found {
                self.send(line)?;
            }
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn send(&mut self, line: LineMatch) -> Result<(), Stop> {
        self.count(size_of(&line))?;
        Ok(self.call.event(&Event::Line(line))?)
    }
}

fn size_of(line: &LineMatch) -> u64 {
    (line.path.as_bytes().len() + line.text.0.len()) as u64 + RESULT_BYTES
}

/// Divides what is read into lines. Only the beginning of a long one is kept.
#[derive(Default)]
struct Lines {
    number: u64,
    begun: Vec<u8>,
    is_begun: bool,
}

impl Lines {
    fn push(&mut self, mut read: &[u8], line: &mut impl FnMut(u64, &[u8])) {
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            self.number += 1;
            if self.is_begun {
                self.begin(&read[..end]);
                line(self.number, &self.begun);
                self.begun.clear();
                self.is_begun = false;
            } else {
                line(self.number, &read[..end.min(LINE_MAX)]);
            }
            read = &read[end + 1..];
        }
        if !read.is_empty() {
            self.begin(read);
        }
    }

    /// The last line may have no end.
    fn end(&mut self, line: &mut impl FnMut(u64, &[u8])) {
        if self.is_begun {
            line(self.number + 1, &self.begun);
        }
    }

    fn begin(&mut self, part: &[u8]) {
        let room = LINE_MAX - self.begun.len();
        self.begun.extend_from_slice(&part[..part.len().min(room)]);
        self.is_begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_MAX, Lines};

    #[test]
    fn lines_are_the_same_however_they_are_read() {
        let text = b"one\n\nthree\r\nlast";
        let whole = [(1, b"one".to_vec()), (2, vec![]), (3, b"three\r".to_vec()), (4, b"last".to_vec())];
        for length in 1..=text.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            let mut keep = |number, line: &[u8]| seen.push((number, line.to_vec()));
            for part in text.chunks(length) {
                lines.push(part, &mut keep);
            }
            lines.end(&mut keep);
            assert_eq!(seen, whole, "{length}");
        }
    }

    #[test]
    fn of_a_line_without_an_end_the_beginning_is_kept() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for _ in 0..40 {
            lines.push(&vec![b'x'; LINE_MAX / 16], &mut |_, _| panic!("it has no end"));
        }
        lines.push(b"\nnext\n", &mut |number, line: &[u8]| seen.push((number, line.len())));
        assert_eq!(seen, [(1, LINE_MAX), (2, 4)]);
    }
}
