//! Where archives are parsed: in this process, or in workers that hold nothing but their pipes.
//!
//! ```text
//! layer:    blob ─(hashed)─► decompress ─► (hashed here) ─► untar ─► entries, checked and written here
//! archive:  file ──────────► decompress ──────────────────► untar ─► the same
//! ```
//!
//! A worker reports the content of an archive, and is trusted as little as the archive: each entry
//! is parsed again, counted and written by the code that also handles entries parsed in this
//! process. The digest of a layer is computed here, between two workers, so that a worker
//! compromised by a hostile blob cannot present its files as those of another layer.

mod roles;
pub(super) mod wire;

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::process::Stdio;
use std::thread;

use dorm_worker::{Fields, Frames, Limits, Output, Program, Worker, WorkerError, legible};
use sha2::{Digest as _, Sha256};

use self::wire::{ANSWER, CONTENT, DONE, ENTRY, LEFT_OUT, PLACE, SAME, WRONG};
use super::archive::{Entries, Wrong};
use super::bundle::index::{Index, Place};
use super::documents::{BlobDigest, Packing};
use super::import::{Job, Sink};
use super::node::{Kind, Node, Refusal};
use crate::error::StorageError;
use crate::sparse::read_full;

pub use self::roles::READERS;

const DECOMPRESS: &str = "decompress";
const UNTAR: &str = "untar";
const INDEX: &str = "archive-index";
const BEGINS: &str = "archive-kind";
const BUFFER: usize = 256 << 10;
/// A zstd window takes 128 MiB, and the program itself about as much address space.
const LIMITS: Limits = Limits { memory_bytes: 512 << 20, cpu_seconds: 3600, silence_seconds: 300 };

/// Where archives are decompressed and parsed.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reader {
    /// In this process: for simulations and tests, whose archives are known.
    #[default]
    InProcess,
    /// In workers.
    Workers(Program),
}

/// A message of a worker.
pub(super) enum Message {
    Entry(String, Node),
    Content(usize),
    LeftOut(String, u64),
    Wrong(Wrong<StorageError>),
    Place(Vec<u8>, u64, u64),
    Same(Vec<u8>, Vec<u8>),
    Answer(bool),
    Done,
}

/// A worker and its messages.
struct Told {
    worker: Worker,
    frames: Frames<Output>,
}

/// Why reading stopped.
enum Failed {
    Worker(WorkerError),
    /// According to a worker, the source is not an archive.
    NoArchive(StorageError),
    Other(StorageError),
}

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        Self::Other(error)
    }
}

impl Failed {
    fn into_error(self, job: &Job<'_>) -> StorageError {
        match self {
            Self::Worker(source) => StorageError::Worker { path: job.source.to_owned(), source },
            Self::NoArchive(error) | Self::Other(error) => error,
        }
    }
}

/// Reads the archive of a root file system.
pub(super) fn rootfs(
    program: &Program,
    sink: &mut Sink<'_, '_>,
    file: &File,
    packing: Packing,
) -> Result<(), StorageError> {
    let input = |file: &File| file.try_clone().map(Stdio::from);
    let input = input(file).map_err(|error| sink.refused("cannot be read", Some(error)))?;
    let read = (|| {
        let (input, decompressor) = decompressed(program, input, packing)?;
        let untar = Told::spawn(program, UNTAR, &["marked"], input)?;
        // The worker moves the file offset, which both processes share.
        let place = || rustix::fs::tell(file).unwrap_or(0);
        let taken = take(untar, sink, &place);
        finish(taken, decompressor, sink.job)
    })();
    read.map_err(|failed: Failed| failed.into_error(sink.job))
}

/// Reads the archive of a build context.
pub(super) fn context(
    program: &Program,
    to: &mut impl Receiver,
    file: &File,
    packing: Packing,
) -> Result<(), StorageError> {
    let input = file.try_clone().map(Stdio::from);
    let input = input.map_err(|error| to.job().refused("cannot be read", Some(error)))?;
    let read = (|| {
        let (input, decompressor) = decompressed(program, input, packing)?;
        let untar = Told::spawn(program, UNTAR, &["marked"], input)?;
        let taken = take(untar, to, &|| 0);
        finish(taken, decompressor, to.job())
    })();
    read.map_err(|failed: Failed| failed.into_error(to.job()))
}

/// Reads a layer. Returns the digests of its blob, if it is compressed, and of its content.
pub(super) fn layer(
    program: &Program,
    sink: &mut Sink<'_, '_>,
    blob: impl Read + Send,
    packing: Packing,
) -> Result<(Option<BlobDigest>, BlobDigest), StorageError> {
    let read = thread::scope(|scope| {
        let mut untar = Told::spawn(program, UNTAR, &["unmarked"], Stdio::piped())?;
        let to_untar = untar.worker.input().ok_or_else(no_pipe)?;
        let (mut decompressor, packed, raw);
        if packing == Packing::Plain {
            (decompressor, packed) = (None, None);
            raw = scope.spawn(move || pump(blob, to_untar, Rest::IsNeeded));
        } else {
            let mut worker = spawn(program, DECOMPRESS, &[name(packing)], Stdio::piped())?;
            let (input, output) = (worker.input().ok_or_else(no_pipe)?, worker.output().ok_or_else(no_pipe)?);
            packed = Some(scope.spawn(move || pump(blob, input, Rest::IsHashed)));
            raw = scope.spawn(move || pump(output, to_untar, Rest::IsNeeded));
            decompressor = Some(worker);
        }
        let taken = take(untar, sink, &|| 0);
        if !matches!(taken, Ok(()) | Err(Failed::NoArchive(_))) {
            // Lets threads that wait for it continue.
            decompressor = None;
        }
        // A silent worker is killed, after which the thread that feeds it ends.
        let finished = finish(taken, decompressor, sink.job);
        let join = |sum: thread::ScopedJoinHandle<'_, io::Result<BlobDigest>>| {
            sum.join().unwrap_or_else(|_| Err(io::Error::other("a thread that feeds a worker panicked")))
        };
        let (packed, raw) = (packed.map(join).transpose(), join(raw));
        finished?;
        let unreadable = |error| sink.refused("a layer cannot be read", Some(error));
        Ok((packed.map_err(unreadable)?, raw.map_err(unreadable)?))
    });
    read.map_err(|failed: Failed| failed.into_error(sink.job))
}

/// Returns the positions of all files; `None` if this is not an image's archive.
pub(super) fn index(program: &Program, job: &Job<'_>, file: File) -> Result<Option<Index>, StorageError> {
    let unreadable = |error| job.refused("cannot be read", Some(error));
    let input = file.try_clone().map_err(unreadable)?;
    let read = Told::spawn(program, INDEX, &[], input.into()).and_then(|told| places(told, file));
    read.map_err(|failed| failed.into_error(job))
}

/// Returns whether a compressed archive may be that of an image.
pub(super) fn begins_like_an_image(
    program: &Program,
    job: &Job<'_>,
    file: &File,
    packing: Packing,
) -> Result<bool, StorageError> {
    let input = file.try_clone().map_err(|error| job.refused("cannot be read", Some(error)))?;
    let read = decompressed(program, input.into(), packing).and_then(|(input, decompressor)| {
        let mut told = Told::spawn(program, BEGINS, &[], input)?;
        match told.next()? {
            Message::Answer(answer) => Ok(answer),
            _ => Err(Failed::Worker(told.worker.refused("it is not an answer"))),
        }
        // Decompression errors are found when all of it is read.
        .inspect(|_| drop(decompressor))
    });
    read.map_err(|failed| failed.into_error(job))
}

/// The output of a decompressing worker. Reading to its end reports whether the worker has failed.
pub(super) struct Decompressed {
    worker: Option<Worker>,
    output: Output,
}

impl Decompressed {
    pub(super) fn of(program: &Program, file: &File, packing: Packing) -> Result<Self, WorkerError> {
        let role = || DECOMPRESS.to_owned();
        let input = file.try_clone().map_err(|source| WorkerError::Spawn { role: role(), source })?;
        let mut worker = spawn(program, DECOMPRESS, &[name(packing)], input.into())?;
        let output = worker.output().ok_or_else(no_pipe)?;
        Ok(Self { worker: Some(worker), output })
    }
}

impl Read for Decompressed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(into)?;
        if read == 0
            && !into.is_empty()
            && let Some(worker) = self.worker.take()
        {
            worker.finish().map_err(io::Error::other)?;
        }
        Ok(read)
    }
}

fn name(packing: Packing) -> &'static str {
    match packing {
        Packing::Plain => "plain",
        Packing::Gzip => "gzip",
        Packing::Zstd => "zstd",
    }
}

fn spawn(program: &Program, role: &'static str, arguments: &[&str], input: Stdio) -> Result<Worker, WorkerError> {
    program.spawn(role, arguments, LIMITS, (input, Stdio::piped()))
}

fn no_pipe() -> WorkerError {
    WorkerError::Message { role: "any".to_owned(), what: "it has no output pipe".to_owned() }
}

impl From<WorkerError> for Failed {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

/// Returns the input of the next worker, and the worker that decompresses it.
fn decompressed(program: &Program, input: Stdio, packing: Packing) -> Result<(Stdio, Option<Worker>), Failed> {
    if packing == Packing::Plain {
        return Ok((input, None));
    }
    let mut worker = spawn(program, DECOMPRESS, &[name(packing)], input)?;
    let output = worker.output_for_another().ok_or_else(no_pipe)?;
    Ok((output, Some(worker)))
}

/// Returns why an archive could not be read: a failed decompression causes a truncated archive.
fn finish(taken: Result<(), Failed>, decompressor: Option<Worker>, job: &Job<'_>) -> Result<(), Failed> {
    let decompressed = decompressor.map_or(Ok(()), Worker::finish);
    match (taken, decompressed) {
        (Ok(()) | Err(Failed::NoArchive(_)), Err(WorkerError::Ended { said, .. })) if !said.is_empty() => {
            Err(Failed::NoArchive(job.refused("it cannot be decompressed", Some(io::Error::other(said)))))
        }
        (Ok(()) | Err(Failed::NoArchive(_)), Err(error)) => Err(error.into()),
        (taken, _) => taken,
    }
}

/// How the rest of a stream is treated after its reader has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It is still part of the digest.
    IsHashed,
    /// The reader should have read it.
    IsNeeded,
}

/// Forwards all of `from`, and returns its digest.
fn pump(mut from: impl Read, to: File, rest: Rest) -> io::Result<BlobDigest> {
    let mut to = Some(to);
    let mut sum = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = read_full(&mut from, &mut buffer)?;
        let piece = buffer.get(..read).unwrap_or_default();
        if piece.is_empty() {
            return Ok(BlobDigest::from_bytes(&sum.finalize()));
        }
        sum.update(piece);
        match to.as_mut().map_or(Ok(()), |to| to.write_all(piece)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && rest == Rest::IsHashed => to = None,
            other => other?,
        }
    }
}

/// Receives the entries of an archive that a worker reads.
pub(super) trait Receiver: Entries<Error = StorageError> {
    /// Notes the position in the source.
    fn reached(&self, place: u64);

    /// Returns the error for the archive that is being read.
    fn refusal(&self, wrong: Wrong<StorageError>) -> StorageError;

    /// The import that reads it.
    fn job(&self) -> &Job<'_>;
}

impl Receiver for Sink<'_, '_> {
    fn reached(&self, place: u64) {
        self.job.read.fetch_max(place, std::sync::atomic::Ordering::Relaxed);
    }

    fn refusal(&self, wrong: Wrong<StorageError>) -> StorageError {
        self.wrong(wrong)
    }

    fn job(&self) -> &Job<'_> {
        self.job
    }
}

/// Passes the entries that a worker finds in an archive to `sink`; `place` returns the position in
/// the source, if it is known.
fn take(mut told: Told, sink: &mut impl Receiver, place: &dyn Fn() -> u64) -> Result<(), Failed> {
    loop {
        match told.next()? {
            Message::Entry(name, node) => {
                sink.reached(place());
                let left = if let Kind::File(bytes) = node.kind { bytes } else { 0 };
                let mut content = Content { told: &mut told, left, in_frame: 0, failed: None };
                let taken = sink.entry(&name, node, &mut content);
                let skipped = if taken.is_ok() { io::copy(&mut content, &mut io::sink()).err() } else { None };
                match content.failed.take() {
                    Some(Stopped::Wrong(wrong)) => return Err(refused(sink, wrong)),
                    Some(Stopped::Worker(error)) => return Err(Failed::Worker(told.worker.failed(error))),
                    None => taken?,
                }
                if let Some(error) = skipped {
                    return Err(Failed::Worker(told.worker.failed(error)));
                }
            }
            Message::LeftOut(name, bytes) => sink.left_out(&name, bytes)?,
            Message::Wrong(wrong) => return Err(refused(sink, wrong)),
            Message::Done => return Ok(()),
            Message::Content(_) | Message::Place(..) | Message::Same(..) | Message::Answer(_) => {
                return Err(Failed::Worker(told.worker.refused("its type is unexpected")));
            }
        }
    }
}

/// Returns the error of a worker, which may be caused by truncated input from the previous one.
fn refused(sink: &impl Receiver, wrong: Wrong<StorageError>) -> Failed {
    Failed::NoArchive(sink.refusal(wrong))
}

/// The content of an entry, as it arrives.
struct Content<'a> {
    told: &'a mut Told,
    left: u64,
    in_frame: usize,
    /// Why it ended early. The I/O error alone would not tell whether the worker or the archive is
    /// at fault.
    failed: Option<Stopped>,
}

enum Stopped {
    Wrong(Wrong<StorageError>),
    Worker(io::Error),
}

impl Content<'_> {
    fn stop(&mut self, why: Stopped) -> io::Error {
        self.failed = Some(why);
        io::ErrorKind::InvalidData.into()
    }

    fn some(&mut self, into: &mut [u8]) -> Result<usize, Stopped> {
        if self.in_frame == 0 {
            self.in_frame = match self.told.message().map_err(Stopped::Worker)? {
                Message::Content(bytes) if bytes > 0 && bytes as u64 <= self.left => bytes,
                Message::Wrong(wrong) => return Err(Stopped::Wrong(wrong)),
                _ => {
                    let what = "it is not content of the current entry";
                    return Err(Stopped::Worker(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
            };
        }
        let read = self.told.frames.read_some(into).map_err(Stopped::Worker)?;
        self.in_frame -= read;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Read for Content<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || into.is_empty() {
            return Ok(0);
        }
        self.some(into).map_err(|why| self.stop(why))
    }
}

impl Told {
    fn spawn(program: &Program, role: &'static str, arguments: &[&str], input: Stdio) -> Result<Self, Failed> {
        let mut worker = spawn(program, role, arguments, input)?;
        let frames = Frames::new(worker.output().ok_or_else(no_pipe)?);
        Ok(Self { worker, frames })
    }

    /// Returns the next message. An error ends the worker.
    fn next(&mut self) -> Result<Message, Failed> {
        self.message().map_err(|error| Failed::Worker(self.worker.explain(error)))
    }

    fn message(&mut self) -> io::Result<Message> {
        message(&mut self.frames)
    }
}

/// Reads the next message of a worker.
pub(super) fn message(frames: &mut Frames<impl Read>) -> io::Result<Message> {
    let Some((kind, bytes)) = frames.next_frame()? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if kind == CONTENT {
        return Ok(Message::Content(bytes));
    }
    let mut fields = Fields::of(frames.content()?);
    let message = match kind {
        ENTRY => {
            let (name, node) = wire::node(&mut fields)?;
            Message::Entry(name, node)
        }
        LEFT_OUT => Message::LeftOut(legible(&fields.text()?), fields.number()?),
        WRONG => Message::Wrong(wrong(&mut fields)?),
        PLACE => Message::Place(fields.text()?, fields.number()?, fields.number()?),
        SAME => Message::Same(fields.text()?, fields.text()?),
        ANSWER => return Ok(Message::Answer(fields.as_bytes() == [1])),
        DONE => Message::Done,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "its type is unknown")),
    };
    fields.end()?;
    Ok(message)
}

fn wrong(fields: &mut Fields) -> io::Result<Wrong<StorageError>> {
    let (is_entry, name, what) = (fields.number()? == 1, legible(&fields.text()?), legible(&fields.text()?));
    let (has_source, source) = (fields.number()? == 1, legible(&fields.text()?));
    let source = has_source.then(|| io::Error::other(source));
    Ok(match is_entry {
        true => Wrong::Entry { name, refusal: Refusal { what, source } },
        false => Wrong::Archive { what, source },
    })
}

fn places(mut told: Told, file: File) -> Result<Option<Index>, Failed> {
    let Message::Answer(is_image) = told.next()? else {
        return Err(Failed::Worker(told.worker.refused("it is not an answer")));
    };
    let mut index = Index::of(file);
    loop {
        let added = match told.next()? {
            Message::Place(name, offset, bytes) => index.add(&name, Place::At(offset, bytes)),
            Message::Same(name, other) => match String::from_utf8(other) {
                Ok(other) => index.add(&name, Place::Same(other)),
                Err(_) => None,
            },
            Message::Done => return Ok(Some(index).filter(|_| is_image)),
            _ => None,
        };
        if added.is_none() {
            return Err(Failed::Worker(told.worker.refused("it is not the position of a file")));
        }
    }
}
