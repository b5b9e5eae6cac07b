//! The files of a memory image as reported by a worker: content written by a guest is parsed in a
//! process that holds only the image's three files and a pipe. The worker's messages are trusted as
//! little as the image: every path is checked again, and there can be no more entries than the
//! image can hold.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Stdio;

use dorm_engine::{Content, Entry, EntryKind, FileSink, LeftOut, NoContent};
use dorm_worker::{Fields, Frames, Limits, Program, Role, Sender, Work, WorkerError, legible};

use crate::budget::FilesLimits;
use crate::error::MemoryImageError;
use crate::files_image::{FILES_IMAGE, LIST, RECORD_BYTES_MIN, has_only_files, read_files_image};
use crate::map::{OpenFile, PAGES_MAP};
use crate::read::{self, IMAGE_FILES};
use crate::walk::is_component;

const NAME: &str = "memory-image";
/// The roles of the workers that read memory images.
pub const READERS: &[Role] = &[Role { name: NAME, open, run }];

const ENTRY: u8 = 1;
/// The position of a piece of the previous entry's content, and its bytes.
const PIECE: u8 = 2;
/// The content of the previous entry is complete.
const WHOLE: u8 = 3;
const WRONG: u8 = 4;
const DONE: u8 = 5;

const DIRECTORY: u64 = 0;
const REPLACING: u64 = 1;
const FILE: u64 = 2;
const SYMLINK: u64 = 3;
const HARD_LINK: u64 = 4;
const FIFO: u64 = 5;
const REMOVED: u64 = 6;

const PATH_MAX: usize = 4095;
/// The minimum size of an entry in an image: a directory entry, an inode, and their attributes.
const ENTRY_BYTES_MIN: u64 = 64;
const MIB: u64 = 1 << 20;
/// The memory of the program itself and of reading the smallest image.
const MEMORY: u64 = 384 * MIB;
/// The maximum memory for reading an image of any size.
const MEMORY_MAX: u64 = 4096 * MIB;

/// Like [`read::read`], but the image in `directory` is parsed by a worker of `program`.
///
/// # Errors
/// When the image is invalid, the worker fails, or the sink fails.
pub fn read_by(
    program: &Program,
    directory: &Path,
    limits: FilesLimits,
    sink: &mut dyn FileSink,
) -> Result<LeftOut, MemoryImageError> {
    let bytes = |name: &'static str| {
        directory.join(name).metadata().map(|facts| facts.len()).map_err(MemoryImageError::read(name))
    };
    // The root is an entry, too, and not counted against the limit.
    let limit = limits.entries.saturating_add(1);
    let (need, most) = if has_only_files(directory) {
        let list = bytes(LIST)?;
        (list.saturating_mul(2), (list / RECORD_BYTES_MIN).min(limit))
    } else {
        let [checkpoint, meta, _] = IMAGE_FILES;
        let (checkpoint, meta) = (bytes(checkpoint)?, bytes(meta)?);
        let map = bytes(PAGES_MAP).unwrap_or(0);
        // The content of the frames is a quarter of their size, and what is built from it is less
        // than three times as large as the content.
        let need = checkpoint.saturating_add(meta.saturating_add(map).saturating_mul(4));
        (need, (checkpoint / ENTRY_BYTES_MIN).min(limit))
    };
    let memory_bytes = MEMORY.saturating_add(need).min(MEMORY_MAX);
    let bounds = Limits { memory_bytes, cpu_seconds: 3600, silence_seconds: 300 };
    let (entries, memory) = (limits.entries.to_string(), limits.memory_bytes.to_string());
    let place = directory.to_str().ok_or_else(|| MemoryImageError::unsound("the path of the image is not UTF-8"))?;
    let mut worker = program.spawn(NAME, &[place, &entries, &memory], bounds, (Stdio::null(), Stdio::piped()))?;
    let output = worker.output().ok_or_else(|| worker.refused("it has no output pipe"))?;
    match take(&mut Frames::new(output), most, sink) {
        Err(Stopped::Files(error)) => Err(error),
        Err(Stopped::Worker(error)) => Err(worker.failed(error).into()),
        Ok(left) => Ok(left),
    }
}

/// Why reading stopped.
pub(crate) enum Stopped {
    Files(MemoryImageError),
    Worker(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Worker(error)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn ended() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Passes the entries in `frames` to `sink`, at most `most` of them.
pub(crate) fn take(frames: &mut Frames<impl Read>, most: u64, sink: &mut dyn FileSink) -> Result<LeftOut, Stopped> {
    let mut count = 0;
    loop {
        match frames.next_frame()?.ok_or_else(ended)? {
            (ENTRY, _) => {
                count += 1;
                if count > most {
                    return Err(invalid("it has more entries than its image can hold").into());
                }
                let entry = entry(&mut Fields::of(frames.content()?))?;
                give(frames, &entry, sink)?;
            }
            (WRONG, _) => {
                let what = legible(&frames.content()?);
                return Err(Stopped::Files(MemoryImageError::Told { what }));
            }
            (DONE, _) => {
                let mut fields = Fields::of(frames.content()?);
                let left = LeftOut { sockets: fields.number()?, devices: fields.number()? };
                fields.end()?;
                return Ok(left);
            }
            _ => return Err(invalid("its type is unexpected").into()),
        }
    }
}

fn give(frames: &mut Frames<impl Read>, entry: &Entry, sink: &mut dyn FileSink) -> Result<(), Stopped> {
    let refused =
        |source| Stopped::Files(MemoryImageError::Sink { path: entry.path.escape_ascii().to_string(), source });
    if !matches!(entry.kind, EntryKind::File { .. }) {
        return sink.take(entry, &mut NoContent).map_err(refused);
    }
    let mut told = Told { frames, piece: Vec::new(), is_whole: false, failed: None };
    let mut taken = sink.take(entry, &mut told);
    while taken.is_ok() && !told.is_whole {
        taken = told.next().map(drop);
    }
    match told.failed {
        Some(stopped) => Err(stopped),
        None => taken.map_err(refused),
    }
}

/// The content of a file, as it arrives.
struct Told<'a, R: Read> {
    frames: &'a mut Frames<R>,
    piece: Vec<u8>,
    is_whole: bool,
    /// Why it ended early. The I/O error alone would not tell whether the worker or the image is at
    /// fault.
    failed: Option<Stopped>,
}

impl<R: Read> Told<'_, R> {
    fn advance(&mut self) -> Result<Option<u64>, Stopped> {
        if self.is_whole {
            return Ok(None);
        }
        match self.frames.next_frame()?.ok_or_else(ended)? {
            (PIECE, length) => {
                let mut at = [0; 8];
                if length <= at.len() {
                    return Err(invalid("a piece of a file is empty").into());
                }
                for byte in &mut at {
                    self.frames.read_some(std::slice::from_mut(byte))?;
                }
                self.piece = self.frames.content()?;
                Ok(Some(u64::from_le_bytes(at)))
            }
            (WHOLE, 0) => {
                self.is_whole = true;
                Ok(None)
            }
            (WRONG, _) => {
                let what = legible(&self.frames.content()?);
                Err(Stopped::Files(MemoryImageError::Told { what }))
            }
            _ => Err(invalid("it is not content of the current file").into()),
        }
    }
}

impl<R: Read> Content for Told<'_, R> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        match self.advance() {
            Ok(at) => Ok(at.map(|at| (at, &self.piece[..]))),
            Err(stopped) => {
                self.failed = Some(stopped);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

fn entry(fields: &mut Fields) -> io::Result<Entry> {
    let path = path(fields.text()?)?;
    let (kind, number, text) = (fields.number()?, fields.number()?, fields.text()?);
    let kind = match kind {
        DIRECTORY => EntryKind::Directory { replaces: false },
        REPLACING => EntryKind::Directory { replaces: true },
        FILE => EntryKind::File { bytes: number },
        SYMLINK if text.len() <= PATH_MAX => EntryKind::Symlink(text),
        HARD_LINK => EntryKind::HardLink(self::path(text)?),
        FIFO => EntryKind::Fifo,
        REMOVED => EntryKind::Removed,
        _ => return Err(invalid("an entry has an unknown kind")),
    };
    let (mode, user, group) = (fields.small()?, fields.small()?, fields.small()?);
    let modified = (fields.number()?.cast_signed(), fields.small()?);
    let mut attributes = BTreeMap::new();
    for _ in 0..fields.number()? {
        attributes.insert(fields.text()?, fields.text()?);
    }
    fields.end()?;
    Ok(Entry { path, kind, mode, user, group, modified, attributes })
}

/// Checks that a path stays below the root.
fn path(path: Vec<u8>) -> io::Result<Vec<u8>> {
    let is_path = path.is_empty() || path.split(|byte| *byte == b'/').all(is_component);
    if is_path && path.len() <= PATH_MAX { Ok(path) } else { Err(invalid("an entry has an invalid path")) }
}

fn open(arguments: &[String]) -> io::Result<Vec<File>> {
    let [directory, _, _] = arguments else { return Err(io::Error::other("the image argument is missing")) };
    let open = |name: &str| File::open(Path::new(directory).join(name));
    if has_only_files(Path::new(directory)) {
        return FILES_IMAGE.into_iter().map(open).collect();
    }
    let mut files: Vec<_> = IMAGE_FILES.into_iter().map(open).collect::<io::Result<_>>()?;
    match open(PAGES_MAP) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        map => files.push(map?),
    }
    Ok(files)
}

fn run(work: Work) -> io::Result<()> {
    let number = |at: usize| work.arguments.get(at).and_then(|number| number.parse().ok());
    let (Some(entries), Some(memory_bytes)) = (number(1), number(2)) else {
        return Err(io::Error::other("the limit arguments are missing or invalid"));
    };
    let limits = FilesLimits { entries, memory_bytes };
    let files = work.files.into_iter().map(|file| file.metadata().map(|facts| (file, facts.len())));
    let files: Vec<_> = files.collect::<io::Result<_>>()?;
    let mut telling = Telling { sender: Sender::new(work.output), fields: Fields::default() };
    let read = match <[OpenFile; 2]>::try_from(files) {
        Ok(files) => read_files_image(files, limits, &mut telling),
        Err(mut files) => {
            let map = if files.len() > IMAGE_FILES.len() { files.pop() } else { None };
            let files = files.try_into().map_err(|_| io::Error::other("expected two or three image files"))?;
            read::read(files, map, limits, &mut telling)
        }
    };
    match read {
        Ok(left) => {
            telling.fields.clear();
            telling.fields.put(left.sockets);
            telling.fields.put(left.devices);
            telling.sender.send(DONE, telling.fields.as_bytes())?;
        }
        Err(error) => telling.sender.send(WRONG, dorm_engine::chain(&error).as_bytes())?,
    }
    telling.sender.flush()
}

/// Reports the content of an image to the daemon.
struct Telling<W: Write + Send> {
    sender: Sender<W>,
    fields: Fields,
}

impl<W: Write + Send> FileSink for Telling<W> {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        let fields = &mut self.fields;
        fields.clear();
        fields.put_bytes(&entry.path);
        let (kind, number, text): (u64, u64, &[u8]) = match &entry.kind {
            EntryKind::Directory { replaces: false } => (DIRECTORY, 0, b""),
            EntryKind::Directory { replaces: true } => (REPLACING, 0, b""),
            EntryKind::File { bytes } => (FILE, *bytes, b""),
            EntryKind::Symlink(target) => (SYMLINK, 0, target),
            EntryKind::HardLink(of) => (HARD_LINK, 0, of),
            EntryKind::Fifo => (FIFO, 0, b""),
            EntryKind::Removed => (REMOVED, 0, b""),
        };
        fields.put(kind);
        fields.put(number);
        fields.put_bytes(text);
        for number in [entry.mode, entry.user, entry.group] {
            fields.put(number.into());
        }
        fields.put(entry.modified.0.cast_unsigned());
        fields.put(entry.modified.1.into());
        fields.put(entry.attributes.len() as u64);
        for (name, value) in &entry.attributes {
            fields.put_bytes(name);
            fields.put_bytes(value);
        }
        self.sender.send(ENTRY, fields.as_bytes())?;
        if !matches!(entry.kind, EntryKind::File { .. }) {
            return Ok(());
        }
        while let Some((at, piece)) = content.next()? {
            self.sender.send_parts(PIECE, &[&at.to_le_bytes(), piece])?;
        }
        self.sender.send(WHOLE, b"")
    }
}

impl From<WorkerError> for MemoryImageError {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Collected, an_image};

    /// The messages of a worker about the image that the parent module's tests read.
    fn told(sink: &mut dyn FnMut(&mut dyn FileSink)) -> Vec<u8> {
        let mut sent = Vec::new();
        let mut telling = Telling { sender: Sender::new(&mut sent), fields: Fields::default() };
        sink(&mut telling);
        telling.fields.clear();
        telling.fields.put(3);
        telling.fields.put(4);
        telling.sender.send(DONE, telling.fields.as_bytes()).unwrap();
        telling.sender.flush().unwrap();
        drop(telling);
        sent
    }

    fn taken(sent: &[u8], most: u64) -> Result<(Collected, LeftOut), String> {
        let mut sink = Collected::default();
        match take(&mut Frames::new(sent), most, &mut sink) {
            Ok(left) => Ok((sink, left)),
            Err(Stopped::Files(error)) => Err(error.to_string()),
            Err(Stopped::Worker(error)) => Err(format!("worker: {error}")),
        }
    }

    #[test]
    fn entries_are_taken_as_they_were_in_the_image_and_no_others() {
        let mut direct = Collected::default();
        an_image(&mut direct).unwrap();
        assert!(direct.0.len() > 3);
        let sent = told(&mut |sink| an_image(sink).map(drop).unwrap());
        let (collected, left) = taken(&sent, 1000).unwrap();
        assert_eq!((collected.0, left), (direct.0, LeftOut { sockets: 3, devices: 4 }));
        assert!(taken(&sent, 2).unwrap_err().contains("more entries than its image"));
        for length in 0..sent.len() {
            assert!(taken(&sent[..length], 1000).unwrap_err().starts_with("worker: "), "{length}");
        }
    }

    #[test]
    fn messages_that_fuzzers_begin_with_pass() {
        const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/told");
        let sent = told(&mut |sink| an_image(sink).map(drop).unwrap());
        if std::env::var_os("DORM_UPDATE").is_some() {
            std::fs::create_dir_all(SEEDS).unwrap();
            std::fs::write(format!("{SEEDS}/image"), [&[0], &sent[..]].concat()).unwrap();
        }
        let seed = std::fs::read(format!("{SEEDS}/image")).unwrap();
        assert_eq!(seed.split_first(), Some((&0, &sent[..])), "the seed is stale: run this with DORM_UPDATE=1");
        crate::fuzzing::told(&sent);
    }

    #[test]
    fn an_entry_that_leads_out_of_the_root_is_refused_whoever_tells_it() {
        let plain = Entry {
            path: b"a".to_vec(),
            kind: EntryKind::Fifo,
            mode: 0,
            user: 0,
            group: 0,
            modified: (0, 0),
            attributes: BTreeMap::new(),
        };
        let bad = [&b"../a"[..], b"/a", b"a//b", b"a/../../b", b"a\0", &[b'a'; 300], &b"a/".repeat(3000)];
        let entries = bad.iter().flat_map(|path| {
            let target = EntryKind::HardLink(path.to_vec());
            [Entry { path: path.to_vec(), ..plain.clone() }, Entry { kind: target, ..plain.clone() }]
        });
        for entry in entries {
            let sent = told(&mut |sink| sink.take(&entry, &mut NoContent).unwrap());
            assert!(taken(&sent, 9).unwrap_err().contains("an invalid path"), "{entry:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_image_is_said_as_it_was() {
        let mut sent = Vec::new();
        let mut sender = Sender::new(&mut sent);
        sender.send(WRONG, b"pages.img is damaged\x1b[0m").unwrap();
        sender.flush().unwrap();
        drop(sender);
        assert_eq!(taken(&sent, 9).err(), Some("pages.img is damaged\\u{1b}[0m".to_owned()));
    }
}
