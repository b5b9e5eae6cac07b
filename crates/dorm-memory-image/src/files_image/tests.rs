//! Handmade lists, as a compromised sandbox might write them.

use std::fs;
use std::io::Write as _;

use super::*;
use crate::tests::Collected;

/// A list in the making.
#[derive(Default)]
struct List {
    records: Vec<u8>,
    entries: u64,
}

impl List {
    /// A list with a root directory.
    fn new() -> Self {
        Self::default().record(DIRECTORY, 0, b"", &[0])
    }

    fn record(mut self, kind: u64, depth: u64, name: &[u8], details: &[u8]) -> Self {
        for number in [kind, depth] {
            put(&mut self.records, number);
        }
        put_text(&mut self.records, name);
        for number in [0o644, 7, 8] {
            put(&mut self.records, number);
        }
        // One nanosecond before 1970.
        put(&mut self.records, 1);
        self.records.extend_from_slice(details);
        self.entries += 1;
        self
    }

    fn text(&self, content: u64) -> Vec<u8> {
        let numbers = [self.entries, content].map(u64::to_le_bytes).concat();
        [MAGIC, &self.records[..], &[0], &numbers, END_MAGIC].concat()
    }

    fn read(&self, content: &[u8]) -> Result<(Collected, LeftOut), String> {
        read(&self.text(content.len() as u64), content)
    }
}

fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    into.push(u8::try_from(number).unwrap());
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    put(into, text.len() as u64);
    into.extend_from_slice(text);
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|number| put(&mut bytes, *number));
    bytes
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_text(&mut bytes, text);
    bytes
}

/// A file of `bytes` bytes with these pieces, and no attributes.
fn file(bytes: u64, pieces: &[(u64, u64)]) -> Vec<u8> {
    let flat: Vec<u64> = pieces.iter().flat_map(|(gap, length)| [*gap, *length]).collect();
    numbers(&[&[bytes, pieces.len() as u64], &flat[..], &[0]].concat())
}

fn open(text: &[u8]) -> OpenFile {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    (file, text.len() as u64)
}

fn read(list: &[u8], content: &[u8]) -> Result<(Collected, LeftOut), String> {
    let mut sink = Collected::default();
    let left = read_files_image([open(list), open(content)], FilesLimits::default(), &mut sink);
    left.map(|left| (sink, left)).map_err(|error| dorm_engine::chain(&error))
}

/// A list of every kind of entry.
fn whole() -> List {
    let attributes = [&[2][..], &text(b"user.a"), &text(b"1"), &text(b"trusted.overlay.x"), &text(b"2")].concat();
    List::new()
        .record(REPLACING, 1, b"a", &attributes)
        .record(FILE, 2, b"empty", &file(0, &[]))
        .record(FILE, 2, b"holes", &file(20_000, &[(0, 3), (10_000, 5)]))
        .record(HARD_LINK, 2, b"other", &text(b"a/holes"))
        .record(SYMLINK, 1, b"b", &[&text(b"../x")[..], &[0]].concat())
        .record(FIFO, 1, b"c", &[0])
        .record(REMOVED, 1, b"d", &[])
        .record(SOCKET, 1, b"e", &[])
        .record(DEVICE, 1, b"f", &[])
        .record(FILE, 1, b"g", &file(2, &[(0, 2)]))
}

#[test]
fn every_kind_of_entry_is_read() {
    let (taken, left) = whole().read(b"onetwo__12").unwrap();
    assert_eq!(left, LeftOut { sockets: 1, devices: 1 });
    let kinds: Vec<_> =
        taken.0.iter().map(|(entry, _)| (str::from_utf8(&entry.path).unwrap(), entry.kind.clone())).collect();
    let expected = [
        ("", EntryKind::Directory { replaces: false }),
        ("a", EntryKind::Directory { replaces: true }),
        ("a/empty", EntryKind::File { bytes: 0 }),
        ("a/holes", EntryKind::File { bytes: 20_000 }),
        ("a/other", EntryKind::HardLink(b"a/holes".to_vec())),
        ("b", EntryKind::Symlink(b"../x".to_vec())),
        ("c", EntryKind::Fifo),
        ("d", EntryKind::Removed),
        ("e", EntryKind::Removed),
        ("f", EntryKind::Removed),
        ("g", EntryKind::File { bytes: 2 }),
    ];
    assert_eq!(kinds, expected);
    let [_, (directory, _), _, (holes, pieces), ..] = &taken.0[..] else { panic!("{:?}", taken.0) };
    assert_eq!(directory.attributes, [(b"user.a".to_vec(), b"1".to_vec())].into());
    assert_eq!((holes.mode, holes.user, holes.group, holes.modified), (0o644, 7, 8, (-1, 999_999_999)));
    assert_eq!(pieces[..], [(0, b"one".to_vec()), (10_003, b"two__".to_vec())]);
    assert_eq!(taken.0.last().unwrap().1, [(0, b"12".to_vec())]);
}

#[test]
fn content_that_a_sink_leaves_unread_is_not_taken_for_that_of_the_next_file() {
    struct Last(Vec<u8>);
    impl FileSink for Last {
        fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
            if entry.path == b"g"
                && let Some((_, piece)) = content.next()?
            {
                self.0 = piece.to_vec();
            }
            Ok(())
        }
    }
    let mut last = Last(Vec::new());
    let files = [open(&whole().text(10)), open(b"onetwo__12")];
    read_files_image(files, FilesLimits::default(), &mut last).unwrap();
    assert_eq!(last.0, b"12");
}

#[test]
fn large_content_comes_in_pieces() {
    let content: Vec<u8> = (0..3 << 20).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let bytes = content.len() as u64;
    let (taken, _) = List::new().record(FILE, 1, b"a", &file(bytes, &[(0, bytes)])).read(&content).unwrap();
    let pieces = &taken.0[1].1;
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces.iter().flat_map(|(_, piece)| piece).copied().collect::<Vec<_>>(), content);
}

#[test]
fn a_list_that_was_cut_or_does_not_add_up_is_refused() {
    let whole = whole().text(10);
    for length in 0..whole.len() {
        let cut = &whole[..length];
        assert!(read(cut, b"onetwo__12").is_err(), "{length} bytes");
        assert!(written_files_image([open(cut), open(b"onetwo__12")]).is_err(), "{length} bytes");
    }
    for content in [&b"onetwo__1"[..], b"onetwo__123", b""] {
        assert!(read(&whole, content).unwrap_err().contains("content.img should have 10 bytes"));
        assert!(written_files_image([open(&whole), open(content)]).is_err());
    }
    assert_eq!(written_files_image([open(&whole), open(b"onetwo__12")]).unwrap(), [whole.len() as u64, 10]);
    let mut more = List::new();
    more.entries += 1;
    assert!(more.read(b"").unwrap_err().contains("as much as it says"));
    assert!(List::new().read(b"unused").unwrap_err().contains("as much as it says"));
    let mut other = List::new().text(0);
    other[0] ^= 1;
    assert!(read(&other, b"").unwrap_err().contains("in another format"));
}

#[test]
fn a_list_that_leads_elsewhere_or_takes_more_than_there_is_is_refused() {
    let long = [b'a'; 256];
    let deep = (1..20).fold(List::new(), |list, depth| list.record(DIRECTORY, depth, &[b'd'; 250], &[0]));
    let lists = [
        (List::default().record(FILE, 0, b"", &file(0, &[])), "the root is not a directory"),
        (List::default().record(DIRECTORY, 0, b"a", &[0]), "the first entry is not the root"),
        (List::default().record(DIRECTORY, 1, b"a", &[0]), "the first entry is not the root"),
        (List::new().record(FIFO, 0, b"a", &[0]), "in no directory"),
        (List::new().record(FIFO, 2, b"a", &[0]), "in no directory"),
        (List::new().record(FIFO, 1, b"a", &[0]).record(FIFO, 2, b"b", &[0]), "in no directory"),
        (List::new().record(FIFO, 1, b"..", &[0]), "not a valid file name"),
        (List::new().record(FIFO, 1, b"a/b", &[0]), "not a valid file name"),
        (List::new().record(FIFO, 1, b"", &[0]), "not a valid file name"),
        (List::new().record(FIFO, 1, b"a\0", &[0]), "not a valid file name"),
        (List::new().record(FIFO, 1, &long, &[0]), "not a valid file name"),
        (deep, "longer than the maximum path length"),
        (List::new().record(FIFO, 1, b"b", &[0]).record(FIFO, 1, b"a", &[0]), "not in ascending order"),
        (List::new().record(FIFO, 1, b"a", &[0]).record(FIFO, 1, b"a", &[0]), "not in ascending order"),
        (List::new().record(10, 1, b"a", &[0]), "unknown kind"),
        (List::new().record(0, 1, b"a", &[0]), "unknown kind"),
        (List::new().record(HARD_LINK, 1, b"a", &text(b"../a")), "hard link is invalid"),
        (List::new().record(HARD_LINK, 1, b"a", &text(b"")), "hard link is invalid"),
        (List::new().record(SYMLINK, 1, b"a", &[&text(b"")[..], &[0]].concat()), "symbolic link is not"),
        (List::new().record(SYMLINK, 1, b"a", &[&text(b"x\0")[..], &[0]].concat()), "symbolic link is not"),
        (List::new().record(FIFO, 1, b"a", &[&[1][..], &text(b""), &text(b"1")].concat()), "extended attribute"),
        (List::new().record(FILE, 1, b"a", &file(4, &[(0, 5)])), "beyond its end"),
        (List::new().record(FILE, 1, b"a", &file(4, &[(0, 0)])), "beyond its end"),
        (List::new().record(FILE, 1, b"a", &file(4, &[(u64::MAX, 2)])), "beyond its end"),
        (List::new().record(FILE, 1, b"a", &file(u64::MAX, &[])), "maximum file size"),
        (List::new().record(FILE, 1, b"a", &file(9, &[(0, 9)])), "more content than content.img"),
        (List::new().record(FILE, 1, b"a", &numbers(&[4, 200])), "before the announced length"),
    ];
    for (number, (list, expected)) in lists.into_iter().enumerate() {
        let error = list.read(b"12345678").err().unwrap_or_default();
        assert!(error.contains(expected), "list {number}: '{error}' instead of '{expected}'");
    }
}

#[test]
fn a_guest_with_too_many_files_is_refused() {
    let list = (0..10).fold(List::new(), |list, number| list.record(FIFO, 1, format!("{number}").as_bytes(), &[0]));
    let limits = FilesLimits { entries: 9, ..FilesLimits::default() };
    let refused = read_files_image([open(&list.text(0)), open(b"")], limits, &mut Collected::default());
    assert!(matches!(refused, Err(MemoryImageError::TooMuch { .. })), "{refused:?}");
}

#[test]
fn lists_that_fuzzers_begin_with_pass() {
    const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/memory/files");
    let seed = [&[2, 0, 0][..], &whole().text(10)].concat();
    if std::env::var_os("DORM_UPDATE").is_some() {
        fs::write(SEED, &seed).unwrap();
    }
    assert_eq!(fs::read(SEED).unwrap(), seed, "the seed is stale: run this with DORM_UPDATE=1");
    crate::fuzzing::image(&seed);
}
