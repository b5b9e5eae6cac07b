//! Reads the archive of a build context: all contents go into one file, and a listing says where
//! each begins. No path of the archive is ever used on this host.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::Path;

use dorm_build::BuildError;
use dorm_build::context::{Context, Entry, FileEntry};

use super::Images;
use super::archive::{self, End, Entries, Wrong};
use super::documents::Packing;
use super::import::Job;
use super::node::{Kind, Node, Refusal};
use super::reader::{self, Reader, Receiver};
use crate::error::{StorageError, failed};
use crate::room::Meter;

/// The name of an uploaded context in errors.
const UPLOADED: &str = "the uploaded context";
const BUFFER: usize = 256 << 10;

impl Images {
    /// Unpacks the archive of a context: its contents to the new file `to`.
    pub(crate) fn unpack_context(&self, archive: &Path, to: &Path) -> Result<Context, StorageError> {
        let mut job = Job::start(Path::new(UPLOADED), self, &|_| ());
        let mut file = File::open(archive).map_err(failed("open", archive))?;
        let mut magic = Vec::new();
        (&mut file).take(5).read_to_end(&mut magic).map_err(failed("read", archive))?;
        file.rewind().map_err(failed("read", archive))?;
        let packing = Packing::of_content(&magic);
        let bytes = file.metadata().map_err(failed("read", archive))?.len();
        job.brought.begin((packing != Packing::Plain).then_some(bytes));
        let content = File::create_new(to).map_err(failed("create", to))?;
        let mut receiver = ContextReceiver {
            job,
            to,
            content: BufWriter::with_capacity(BUFFER, content),
            meter: self.room.meter(to.parent().unwrap_or(to)),
            offset: 0,
            context: Context::default(),
        };
        match &self.reader {
            Reader::Workers(program) => reader::context(program, &mut receiver, &file, packing)?,
            Reader::InProcess => {
                let unpacked = archive::decompress(packing, file).map_err(failed("read", archive))?;
                archive::read_tar(&mut receiver, unpacked, End::IsMarked).map_err(|wrong| receiver.refusal(wrong))?;
            }
        }
        receiver.finish()
    }
}

/// The destination of a context's entries.
struct ContextReceiver<'a> {
    job: Job<'a>,
    to: &'a Path,
    content: BufWriter<File>,
    meter: Meter,
    offset: u64,
    context: Context,
}

impl ContextReceiver<'_> {
    fn finish(mut self) -> Result<Context, StorageError> {
        let content = self.content.into_inner().map_err(|error| failed("write", self.to)(error.into_error()))?;
        content.sync_all().map_err(failed("sync", self.to))?;
        let completed = self.context.complete();
        completed.map_err(|error| self.job.refused(&said(error), None))?;
        Ok(self.context)
    }

    fn count(&mut self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let (job, to) = (&mut self.job, self.to);
        let counted = job.brought.entry(&job.limits).and_then(|()| job.brought.content(bytes, &job.limits));
        counted.map_err(|refusal| job.entry_refused(name, refusal, to))?;
        self.meter.charge_name(name.as_bytes())?;
        self.meter.charge_bytes(bytes)
    }

    /// Writes the content of a file after the others.
    fn take(&mut self, node: &Node, bytes: u64, content: &mut dyn Read) -> Result<Entry, Refusal> {
        let offset = self.offset;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER];
        let mut left = bytes;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let free = buffer.get_mut(..want).unwrap_or_default();
            let read = content.read(free).map_err(|error| Refusal::system("cannot be read", error))?;
            if read == 0 {
                return Err(Refusal::because(format!("is truncated: {left} of {bytes} bytes are missing")));
            }
            let piece = buffer.get(..read).unwrap_or_default();
            hasher.update(piece);
            self.content.write_all(piece).map_err(|error| Refusal::system("cannot be written", error))?;
            left -= read as u64;
        }
        self.offset += bytes;
        let (mode, hash) = (node.mode & 0o7777, *hasher.finalize().as_bytes());
        Ok(Entry::File(FileEntry { mode, bytes, hash, offset }))
    }

    fn add(&mut self, node: &Node, content: &mut dyn Read) -> Result<(), Refusal> {
        let text = |bytes: &[u8], what: &str| {
            String::from_utf8(bytes.to_vec()).map_err(|_| Refusal::because(format!("has a {what} that is not UTF-8")))
        };
        let path = text(node.path.as_bytes(), "name")?;
        let entry = match &node.kind {
            Kind::Directory => Entry::Directory,
            Kind::File(bytes) => self.take(node, *bytes, content)?,
            Kind::Symlink(target) => Entry::Link(text(target, "target")?),
            Kind::HardLink(other) => {
                let other = text(other.as_bytes(), "target")?;
                match self.context.get(&other) {
                    Some(entry @ Entry::File(_)) => entry.clone(),
                    Some(Entry::Directory | Entry::Link(_)) | None => {
                        let what = format!("is a hard link to '{other}', which is no file before it in the archive");
                        return Err(Refusal::because(what));
                    }
                }
            }
            Kind::Fifo => return Err(Refusal::because("is not a file, directory or link")),
        };
        self.context.insert(&path, entry).map_err(|error| Refusal::because(said(error)))
    }
}

fn said(error: BuildError) -> String {
    match error {
        BuildError::Line { what, .. } | BuildError::Step { what } => what,
    }
}

impl Entries for ContextReceiver<'_> {
    type Error = StorageError;

    fn entry(&mut self, name: &str, node: Node, content: &mut dyn Read) -> Result<(), StorageError> {
        let bytes = if let Kind::File(bytes) = node.kind { bytes } else { 0 };
        self.count(name, bytes)?;
        self.add(&node, content).map_err(|refusal| self.job.entry_refused(name, refusal, self.to))
    }

    fn left_out(&mut self, name: &str, bytes: u64) -> Result<(), StorageError> {
        self.count(name, bytes)
    }
}

impl Receiver for ContextReceiver<'_> {
    fn reached(&self, _place: u64) {}

    fn refusal(&self, wrong: Wrong<StorageError>) -> StorageError {
        match wrong {
            Wrong::Archive { what, source } => self.job.refused(&what, source),
            Wrong::Entry { name, refusal } => self.job.entry_refused(&name, refusal, self.to),
            Wrong::Taker(error) => error,
        }
    }

    fn job(&self) -> &Job<'_> {
        &self.job
    }
}
