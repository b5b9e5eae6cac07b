//! Verified marks: which files have been read and found to have their recorded hash, so that the
//! next use need not read them again (decision 0040).
//!
//! A mark ties a hash to what the file system says of a file: device, inode, length, and the times
//! of the last write and of the last change of the inode. A write to the file changes those, and no
//! process can set the second time. The mark is no proof of anything: without one, a file is read.
//! It does not see a bit that flips on the disk; reading in the background does, and takes no
//! notice of marks.
//!
//! ```text
//! wait until the clock is past the last change ─► identity ─► read all ─► same identity ─► mark
//! ```
//!
//! The wait matters because time stamps are coarse: a write just after the reading could have the
//! time stamp of one just before.
//!
//! Marks are kept in memory and in a log, each line with a hash of its own. The log belongs to one
//! boot of the host and is therefore never synced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dorm_lifecycle::SavedStateId;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{SavedState, SavedStateFile};

/// The name of the log in the data directory.
pub const MARKS: &str = "verified.log";
/// Files up to this length are always read: it takes a millisecond.
const READ_ALWAYS: u64 = 4 << 20;
/// How long to wait for the clock. Its resolution is 10 ms at worst.
const CLOCK_LIMIT: Duration = Duration::from_millis(20);
/// The log is written anew when it has so many lines more than there are marks.
const SURPLUS_LINES: usize = 4096;
/// The file systems that change both times at every write, also through mappings, with a clock of
/// this host: ext4, XFS and Btrfs.
const FILE_SYSTEMS: [i64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The facts about a file that a write changes. If they are the same before and after its content
/// was read, it was not written to in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    fn is_same_content(&self, other: &Self) -> bool {
        Self { changed: other.changed, ..*self } == *other
    }
}

impl From<&fs::Metadata> for Identity {
    fn from(facts: &fs::Metadata) -> Self {
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            bytes: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }
}

/// A file that is about to be read to its last byte.
pub(super) struct Observed(Option<Identity>);

impl Observed {
    /// Begins to observe `file`. Waits until a write from now on would get a later time stamp than
    /// the file has; without that, no mark can be made.
    pub(super) fn begin(file: &File) -> Self {
        let Some(identity) = Identity::of(file).ok().filter(|identity| identity.bytes > READ_ALWAYS) else {
            return Self(None);
        };
        Self((is_trusted(file) && is_past(identity.changed)).then_some(identity))
    }

    /// Returns a mark if the file is as it was at the beginning.
    pub(super) fn end(self, file: &File, blake3: &str) -> Option<Mark> {
        let identity = self.0.filter(|identity| Identity::of(file).is_ok_and(|now| now == *identity))?;
        Some(Mark { identity, blake3: blake3.to_owned() })
    }
}

#[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the type depends on the architecture")]
pub(super) fn is_trusted(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|facts| FILE_SYSTEMS.contains(&(facts.f_type as i64)))
}

/// Waits until the clock of time stamps is past `time`; returns `false` if that would take long.
fn is_past(time: (i64, i64)) -> bool {
    // A file system that stores whole seconds would show the same time for a second.
    let time = if time.1 == 0 { (time.0 + 1, 0) } else { time };
    let began = Instant::now();
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec) > time {
            return true;
        }
        if began.elapsed() > CLOCK_LIMIT || time.0 > now.tv_sec + 1 {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A file that had this hash when it was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    #[serde(flatten)]
    identity: Identity,
    blake3: String,
}

/// One line of the log; without a mark, earlier ones of the saved state are void.
#[derive(Serialize, Deserialize)]
struct Line {
    saved_state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
}

type Known = BTreeMap<SavedStateId, BTreeMap<PathBuf, Mark>>;

/// The marks of all saved states of a data directory.
pub(super) struct Marks {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Known,
    /// The open log; none if it cannot be written.
    log: Option<File>,
    lines: usize,
}

impl Marks {
    /// Reads the log at `path` as far as it is of this boot, for the saved states `existing`.
    pub(super) fn open(path: PathBuf, existing: &BTreeSet<SavedStateId>) -> Self {
        let boot = fs::read_to_string(BOOT).unwrap_or_default().trim().to_owned();
        let mut known = read(&path, &boot);
        known.retain(|saved_state, _| existing.contains(saved_state));
        let mut state = State { known, ..State::default() };
        state.rewrite(&path, &boot);
        Self { path, state: Mutex::new(state) }
    }

    /// Returns whether `file` has a mark with its recorded hash, and was not changed since.
    pub(super) fn holds(&self, saved_state: &SavedStateId, expected: &SavedStateFile, file: &File) -> bool {
        let state = self.state();
        let mark = state.known.get(saved_state).and_then(|files| files.get(&expected.name));
        mark.is_some_and(|mark| {
            mark.blake3 == expected.blake3
                && mark.identity.bytes == expected.bytes
                && Identity::of(file).is_ok_and(|now| now == mark.identity)
        })
    }

    /// Marks `file` as it is, unread.
    #[cfg(test)]
    pub(super) fn forge(&self, saved_state: &SavedStateId, expected: &SavedStateFile, file: &File) {
        let mark = Mark { identity: Identity::of(file).unwrap(), blake3: expected.blake3.clone() };
        self.keep(saved_state, &expected.name, mark);
    }

    pub(super) fn keep(&self, saved_state: &SavedStateId, file: &Path, mark: Mark) {
        self.state().keep(&self.path, saved_state, file, mark);
    }

    /// Forgets the marks of a saved state that is being removed.
    pub(super) fn forget(&self, saved_state: &SavedStateId) {
        self.state().known.remove(saved_state);
    }

    /// Makes the marks of a damaged saved state void, also for the next daemon, and those of others
    /// that have a file in common with it.
    pub(super) fn distrust(&self, damaged: &SavedState) {
        let inodes: BTreeSet<_> = damaged
            .files
            .iter()
            .filter_map(|file| damaged.directory.join(&file.name).symlink_metadata().ok())
            .map(|facts| (facts.dev(), facts.ino()))
            .collect();
        let others: Vec<_> = {
            let state = self.state();
            let shares = |mark: &Mark| inodes.contains(&(mark.identity.device, mark.identity.inode));
            let shared = state.known.iter().filter(|(_, files)| files.values().any(shares));
            shared.map(|(id, _)| id.clone()).filter(|id| *id != damaged.id).collect()
        };
        others.iter().chain([&damaged.id]).for_each(|saved_state| self.void(saved_state));
    }

    fn void(&self, saved_state: &SavedStateId) {
        let mut state = self.state();
        state.known.remove(saved_state);
        let line = Line { saved_state: saved_state.to_string(), file: None, mark: None };
        if state.append(&self.path, &line).is_ok() {
            return;
        }
        // A log that does not say it must not be read again.
        let emptied = OpenOptions::new().write(true).truncate(true).open(&self.path);
        if let Err(error) = emptied
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%saved_state, path = %self.path.display(), %error, "cannot empty the log of verified files; remove it before the next start");
        }
    }

    /// Does `change`, which changes the names of `file` but not its content, and renews its marks.
    /// A write at the same time changes another time stamp than the names do, and makes them void.
    /// `also` is a new name of the same file.
    pub(super) fn through<T, E>(
        &self,
        file: &File,
        also: Option<(&SavedStateId, &Path)>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = Identity::of(file).ok();
        let marked = before.map(|before| self.marked(&before)).unwrap_or_default();
        let done = change()?;
        let (Some(before), Some((_, _, blake3))) = (before, marked.first().cloned()) else { return Ok(done) };
        let Ok(after) = Identity::of(file) else { return Ok(done) };
        if before.is_same_content(&after) && is_past(after.changed) && Identity::of(file).is_ok_and(|now| now == after)
        {
            let also = also.map(|(id, name)| (id.clone(), name.to_owned(), blake3));
            for (id, name, blake3) in marked.into_iter().chain(also) {
                self.keep(&id, &name, Mark { identity: after, blake3 });
            }
        }
        Ok(done)
    }

    /// Returns the marks of a file, each with its hash.
    fn marked(&self, identity: &Identity) -> Vec<(SavedStateId, PathBuf, String)> {
        let state = self.state();
        let all = state.known.iter().flat_map(|(id, files)| files.iter().map(move |(name, mark)| (id, name, mark)));
        // An outdated mark may be of other content.
        let marked = all.filter(|(_, _, mark)| mark.identity == *identity);
        marked.map(|(id, name, mark)| (id.clone(), name.clone(), mark.blake3.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Consistent between any two statements that hold the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, path: &Path, saved_state: &SavedStateId, file: &Path, mark: Mark) {
        let line = Line { saved_state: saved_state.to_string(), file: Some(file.to_owned()), mark: Some(mark.clone()) };
        self.known.entry(saved_state.clone()).or_default().insert(file.to_owned(), mark);
        if let Err(error) = self.append(path, &line) {
            tracing::debug!(path = %path.display(), %error, "cannot note a verified file; the next daemon reads it");
        }
    }

    fn append(&mut self, path: &Path, line: &Line) -> io::Result<()> {
        let marks: usize = self.known.values().map(BTreeMap::len).sum();
        if self.lines > marks + SURPLUS_LINES {
            let boot = fs::read_to_string(BOOT).unwrap_or_default();
            self.rewrite(path, boot.trim());
        }
        let Some(mut log) = self.log.take() else { return Err(io::ErrorKind::NotFound.into()) };
        // After a line that was cut off, no other could be read: the log then ends for good.
        log.write_all(text(line)?.as_bytes())?;
        self.log = Some(log);
        self.lines += 1;
        Ok(())
    }

    /// Writes the log anew with what is known.
    fn rewrite(&mut self, path: &Path, boot: &str) {
        self.log = None;
        match write(path, boot, &self.known) {
            Ok((log, lines)) => (self.log, self.lines) = (Some(log), lines),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cannot write the log of verified files; the next daemon reads them");
            }
        }
    }
}

fn write(path: &Path, boot: &str, known: &Known) -> io::Result<(File, usize)> {
    if boot.is_empty() {
        return Err(io::Error::other("the boot of the host is unknown"));
    }
    let part = path.with_extension("new");
    let mut whole = format!("{boot}\n");
    let mut lines = 0;
    for (saved_state, files) in known {
        for (file, mark) in files {
            let (file, mark) = (Some(file.clone()), Some(mark.clone()));
            whole.push_str(&text(&Line { saved_state: saved_state.to_string(), file, mark })?);
            lines += 1;
        }
    }
    let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(&part)?;
    log.set_len(0)?;
    log.write_all(whole.as_bytes())?;
    fs::rename(&part, path)?;
    Ok((log, lines))
}

fn text(line: &Line) -> io::Result<String> {
    let body = serde_json::to_string(line)?;
    Ok(format!("{} {body}\n", blake3::hash(body.as_bytes()).to_hex()))
}

/// Returns the marks in the log, or none if it is of another boot. A line that is damaged or was
/// cut off counts as missing.
fn read(path: &Path, boot: &str) -> Known {
    let mut known = Known::new();
    let text = fs::read(path).unwrap_or_default();
    let mut lines = text.split(|byte| *byte == b'\n');
    if boot.is_empty() || lines.next() != Some(boot.as_bytes()) {
        return known;
    }
    for line in lines {
        let Some((hash, body)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else { continue };
        if blake3::hash(body.as_bytes()).to_hex().as_str() != hash {
            continue;
        }
        let Ok(Line { saved_state, file, mark }) = serde_json::from_str(body) else { continue };
        let Ok(saved_state) = saved_state.parse::<SavedStateId>() else { continue };
        match file.zip(mark) {
            Some((file, mark)) => drop(known.entry(saved_state).or_default().insert(file, mark)),
            None => drop(known.remove(&saved_state)),
        }
    }
    known
}
