//! The worker roles for images: each is a function from bytes to bytes or messages.

use std::fs::File;
use std::io::{self, Read, Write};

use dorm_worker::{Fields, Role, Sender, Work};

use super::wire::{ANSWER, CONTENT, CONTENT_MAX, DONE, ENTRY, LEFT_OUT, PLACE, SAME, WRONG, put_node};
use super::{BEGINS, DECOMPRESS, INDEX, UNTAR};
use crate::images::archive::{self, End, Entries, Wrong};
use crate::images::bundle::index::{self, Place};
use crate::images::documents::Packing;
use crate::images::node::{Kind, Node, Refusal};
use crate::sparse::read_full;

/// The roles of the workers that read images.
pub const READERS: &[Role] = &[
    Role::new(DECOMPRESS, decompress),
    Role::new(UNTAR, untar),
    Role::new(INDEX, index_of),
    Role::new(BEGINS, begins_like_an_image),
];

fn decompress(work: Work) -> io::Result<()> {
    let packing = match work.arguments.first().map(String::as_str) {
        Some("gzip") => Packing::Gzip,
        Some("zstd") => Packing::Zstd,
        _ => return Err(io::Error::other("unknown compression")),
    };
    let mut output = work.output;
    let mut from = archive::decompress(packing, work.input)?;
    let mut buffer = vec![0; CONTENT_MAX];
    loop {
        let read = read_full(&mut from, &mut buffer)?;
        match output.write_all(buffer.get(..read).unwrap_or_default()) {
            // The reader has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        if read == 0 {
            return Ok(());
        }
    }
}

fn untar(work: Work) -> io::Result<()> {
    let end = match work.arguments.first().map(String::as_str) {
        Some("marked") => End::IsMarked,
        _ => End::MayBeMissing,
    };
    let from = io::BufReader::with_capacity(CONTENT_MAX, work.input);
    let mut told = Told { sender: Sender::new(work.output), fields: Fields::default(), buffer: vec![0; CONTENT_MAX] };
    match archive::read_tar(&mut told, from, end) {
        Ok(()) => told.sender.send(DONE, b"")?,
        Err(Wrong::Archive { what, source }) => told.wrong(None, &what, source)?,
        Err(Wrong::Entry { name, refusal }) => told.wrong(Some(&name), &refusal.what, refusal.source)?,
        Err(Wrong::Taker(Stop::Refused(name, refusal))) => told.wrong(Some(&name), &refusal.what, refusal.source)?,
        Err(Wrong::Taker(Stop::Pipe(error))) => return Err(error),
    }
    told.sender.flush()
}

/// Reports the content of an archive to the daemon.
struct Told {
    sender: Sender<File>,
    fields: Fields,
    buffer: Vec<u8>,
}

/// Why no more is reported.
enum Stop {
    Refused(String, Refusal),
    Pipe(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Pipe(error)
    }
}

impl Told {
    fn wrong(&mut self, entry: Option<&str>, what: &str, source: Option<io::Error>) -> io::Result<()> {
        self.fields.clear();
        self.fields.put(entry.is_some().into());
        self.fields.put_bytes(entry.unwrap_or_default().as_bytes());
        self.fields.put_bytes(what.as_bytes());
        self.fields.put(source.is_some().into());
        self.fields.put_bytes(source.map(|error| error.to_string()).unwrap_or_default().as_bytes());
        self.sender.send(WRONG, self.fields.as_bytes())
    }
}

impl Entries for Told {
    type Error = Stop;

    fn entry(&mut self, name: &str, node: Node, content: &mut dyn Read) -> Result<(), Stop> {
        self.fields.clear();
        put_node(&mut self.fields, name, &node);
        self.sender.send(ENTRY, self.fields.as_bytes())?;
        let Kind::File(bytes) = node.kind else { return Ok(()) };
        let mut left = bytes;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let free = self.buffer.get_mut(..want).unwrap_or_default();
            let refused = |refusal| Stop::Refused(name.to_owned(), refusal);
            let read = read_full(content, free);
            let read = read.map_err(|error| refused(Refusal::system("cannot be read", error)))?;
            left -= read as u64;
            if read < want {
                let what = format!("is truncated: {left} of {bytes} bytes are missing");
                return Err(refused(Refusal::because(what)));
            }
            self.sender.send(CONTENT, self.buffer.get(..read).unwrap_or_default())?;
        }
        Ok(())
    }

    fn left_out(&mut self, name: &str, bytes: u64) -> Result<(), Stop> {
        self.fields.clear();
        self.fields.put_bytes(name.as_bytes());
        self.fields.put(bytes);
        Ok(self.sender.send(LEFT_OUT, self.fields.as_bytes())?)
    }
}

fn index_of(work: Work) -> io::Result<()> {
    let mut sender = Sender::new(work.output);
    let found = index::read(work.input);
    sender.send(ANSWER, &[u8::from(found.is_some())])?;
    for (name, place) in found.iter().flat_map(index::Index::places) {
        let mut fields = Fields::default();
        fields.put_bytes(name.as_bytes());
        match place {
            Place::At(offset, bytes) => {
                fields.put(*offset);
                fields.put(*bytes);
                sender.send(PLACE, fields.as_bytes())?;
            }
            Place::Same(other) => {
                fields.put_bytes(other.as_bytes());
                sender.send(SAME, fields.as_bytes())?;
            }
        }
    }
    sender.send(DONE, b"")?;
    sender.flush()
}

fn begins_like_an_image(work: Work) -> io::Result<()> {
    let mut sender = Sender::new(work.output);
    sender.send(ANSWER, &[u8::from(index::begins_like_one(work.input))])?;
    sender.send(DONE, b"")?;
    sender.flush()
}
