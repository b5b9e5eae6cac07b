//! The entry points of the fuzzers: a memory image written by a compromised sandbox, and the
//! messages of a compromised worker about one. Not part of any release build.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};

use dorm_engine::{Content, Entry, EntryKind, FileSink};
use dorm_worker::Frames;

use crate::budget::{Budget, FilesLimits};
use crate::files_image::read_files_image;
use crate::map::PagesMap;
use crate::pages::{MemoryFiles, Source};
use crate::read::kernel;
use crate::told::Stopped;
use crate::walk::Walk;
use crate::{told, tree, unframe};

/// The flag in the first byte that says that the state is framed.
const FRAMED: u8 = 1;
/// The flag in the first byte that says that the rest is a list of files.
const LISTED: u8 = 2;
const PAGES_MAX: u64 = 16 << 20;
/// The maximum total content of an image's files: each page belongs to at most one of them.
const CONTENT_MAX: u64 = PAGES_MAX + (1 << 20);

/// Reads an image: a byte that says whether it is framed, two bytes with the length of
/// `pages_meta.img`, that file, and the saved state; or the list of an image that has only files.
/// Its pages and contents are zeros.
///
/// # Panics
/// When an entry leads out of the root, or the content exceeds the pages.
pub fn image(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<3>() else { return };
    let [how, low, high] = *head;
    if how & LISTED != 0 {
        return listed(rest);
    }
    let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (meta, state) = rest.split_at(length);
    let budget = Budget::new(FilesLimits::default(), data.len() as u64);
    let Ok(memory) = MemoryFiles::read(meta, &budget) else { return };
    if memory.bytes > PAGES_MAX {
        return;
    }
    let state = match how & FRAMED {
        0 => state.to_vec(),
        _ => match unframe::unframe(&mut &state[..], state.len() as u64, &budget) {
            Ok(state) => state,
            Err(_) => return,
        },
    };
    let Ok(graph) = kernel(&state, &budget) else { return };
    let Ok((upper, tmp)) = tree::find(&graph, &memory) else { return };
    let pages = zeros(memory.bytes);
    let mut sink = Counted::default();
    let _ = Walk::new(&graph, Source::new(pages, memory.bytes, PagesMap::default()), &mut sink, &budget)
        .run(&upper, tmp.as_ref());
}

/// Reads a list whose content is zeros, as many as the list says.
fn listed(list: &[u8]) {
    let bytes = list.last_chunk::<16>().and_then(|tail| tail.first_chunk::<8>());
    let bytes = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if bytes > PAGES_MAX {
        return;
    }
    let mut file = zeros(0);
    file.write_all(list).and_then(|()| file.rewind()).expect("to write the list");
    let files = [(file, list.len() as u64), (zeros(bytes), bytes)];
    let _ = read_files_image(files, FilesLimits::default(), &mut Counted::default());
}

fn zeros(bytes: u64) -> File {
    let file = File::from(rustix::fs::memfd_create("zeros", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"));
    file.set_len(bytes).expect("to give it its length");
    file
}

/// Reads the messages of a worker about a memory image.
///
/// # Panics
/// When a path leads out of the root, there are more entries than allowed, or the error is long.
pub fn told(data: &[u8]) {
    const ENTRIES_MAX: u64 = 100;
    let mut sink = Told::default();
    let taken = told::take(&mut Frames::new(data), ENTRIES_MAX, &mut sink);
    assert!(sink.entries <= ENTRIES_MAX);
    if let Err(Stopped::Files(error)) = taken {
        assert!(error.to_string().len() < 8192, "an error is as long as what it is about");
    }
}

#[derive(Default)]
struct Told {
    entries: u64,
}

impl FileSink for Told {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        self.entries += 1;
        is_inside(&entry.path);
        if let EntryKind::HardLink(of) = &entry.kind {
            is_inside(of);
        }
        while let Some((_, piece)) = content.next()? {
            assert!(!piece.is_empty());
        }
        Ok(())
    }
}

fn is_inside(path: &[u8]) {
    let is_inside = path.is_empty() || path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    assert!(is_inside && !path.contains(&0), "{:?} leads elsewhere", String::from_utf8_lossy(path));
}

#[derive(Default)]
struct Counted {
    bytes: u64,
}

impl FileSink for Counted {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        is_inside(&entry.path);
        if let EntryKind::HardLink(of) = &entry.kind {
            is_inside(of);
        }
        let mut last = 0;
        while let Some((at, piece)) = content.next()? {
            let EntryKind::File { bytes } = entry.kind else { panic!("only files have content") };
            let end = at + piece.len() as u64;
            assert!(at >= last && end <= bytes, "a piece at {at} to {end} of a file of {bytes}, after {last}");
            last = end;
            self.bytes += piece.len() as u64;
        }
        assert!(self.bytes <= CONTENT_MAX, "more comes out than is in it");
        Ok(())
    }
}
