//! Whole handmade images, as a compromised sandbox might write them.

use std::fs;
use std::io::Write;

use dorm_engine::{Content, Entry, EntryKind, FileSink, LeftOut};

use crate::budget::{Budget, FilesLimits};
use crate::error::MemoryImageError;
use crate::fuzzing;
use crate::map::PagesMap;
use crate::pages::{MemoryFiles, Source};
use crate::read::{kernel, read};
use crate::sample::{self, Saved, int, map, nil, reference, slice, text, truth, uint};
use crate::tree;
use crate::walk::Walk;

/// A handmade image: an overlay whose upper layer contains the added entries.
struct Image {
    saved: Saved,
    tmpfs: u64,
    root: u64,
    root_entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Image {
    fn new() -> Self {
        let mut saved = Saved::default();
        let kernel = saved.room();
        let value = saved.make("pkg/sentry/kernel.Kernel", &[]);
        saved.put(kernel, value);
        let (tmpfs, root) = (saved.room(), saved.room());
        let tmpfs_fields = [("root", reference(root, "dentry")), ("mf", text(b"a:/")), ("mopts", nil())];
        let value = saved.make("pkg/sentry/fsimpl/tmpfs.filesystem", &tmpfs_fields);
        saved.put(tmpfs, value);
        let place = saved.make("pkg/sentry/vfs.VirtualDentry", &[("mount", nil()), ("dentry", nil())]);
        let mount = [("fs", reference(tmpfs, "")), ("ID", uint(1)), ("key", place), ("umounted", truth(false))];
        let mount = saved.make("pkg/sentry/vfs.Mount", &mount);
        let mount = saved.add(mount);
        let upper = [("mount", reference(mount, "")), ("dentry", reference(root, "dentry"))];
        let upper = saved.make("pkg/sentry/vfs.VirtualDentry", &upper);
        let options = saved.make("pkg/sentry/fsimpl/overlay.FilesystemOptions", &[("UpperRoot", upper)]);
        let overlay = saved.make("pkg/sentry/fsimpl/overlay.filesystem", &[("opts", options)]);
        saved.add(overlay);
        Self { saved, tmpfs, root, root_entries: Vec::new() }
    }

    fn inode(&mut self, mode: u64, attributes: u64) -> Vec<u8> {
        let attributes = if attributes == 0 { nil() } else { reference(attributes, "") };
        let attributes = self.saved.make("pkg/sentry/vfs/memxattr.SimpleExtendedAttributes", &[("xattrs", attributes)]);
        let fields = [
            ("fs", reference(self.tmpfs, "")),
            ("xattrs", attributes),
            ("mode", uint(mode)),
            ("uid", uint(7)),
            ("gid", nil()),
            ("mtime", int(-1)),
        ];
        self.saved.make("pkg/sentry/fsimpl/tmpfs.inode", &fields)
    }

    fn dentry(&mut self, name: &[u8], inode: u64) -> Vec<u8> {
        let fields = [("name", text(name)), ("inode", reference(inode, "inode"))];
        self.saved.make("pkg/sentry/fsimpl/tmpfs.dentry", &fields)
    }

    /// Makes `number` a directory with the map `children`.
    fn directory(&mut self, number: u64, name: &[u8], children: u64) {
        let (inode, dentry) = (self.inode(0o040_750, 0), self.dentry(name, number));
        let children = if children == 0 { nil() } else { reference(children, "") };
        let fields = [("dentry", dentry), ("inode", inode), ("childMap", children)];
        let value = self.saved.make("pkg/sentry/fsimpl/tmpfs.directory", &fields);
        self.saved.put(number, value);
    }

    /// Adds a file's inode whose segments are at (start, end, memory).
    fn file(&mut self, bytes: u64, segments: &[(u64, u64, u64)], attributes: u64) -> u64 {
        let segment = |&(start, end, value): &(u64, u64, u64)| {
            let fields = [("Start", uint(start)), ("End", uint(end)), ("Value", uint(value))];
            self.saved.make("pkg/sentry/fsutil.FileRangeFlatSegment", &fields)
        };
        let segments: Vec<_> = segments.iter().map(segment).collect();
        let array = self.saved.add(sample::array(&segments));
        let ranges = [("root", slice(segments.len() as u64, array))];
        let ranges = self.saved.make("pkg/sentry/fsutil.FileRangeSet", &ranges);
        let inode = self.inode(0o104_755, attributes);
        let fields = [("inode", inode), ("data", ranges), ("size", uint(bytes))];
        let value = self.saved.make("pkg/sentry/fsimpl/tmpfs.regularFile", &fields);
        self.saved.add(value)
    }

    /// Adds an entry for `inode` to the root.
    fn enter(&mut self, name: &[u8], inode: u64) {
        let dentry = self.dentry(name, inode);
        let dentry = self.saved.add(dentry);
        self.root_entries.push((text(name), reference(dentry, "")));
    }

    fn read(self) -> Result<Vec<(Entry, Vec<Piece>)>, MemoryImageError> {
        self.read_within(FilesLimits::default())
    }

    fn read_within(mut self, limits: FilesLimits) -> Result<Vec<(Entry, Vec<Piece>)>, MemoryImageError> {
        let children = self.saved.add(map(&self.root_entries));
        self.directory(self.root, b"", children);
        let parts = [(0, 8192, true), (8192, 12_288, false), (12_288, 16_384, true)];
        read_within(&self.saved.bytes(), &parts, limits)
    }
}

pub(crate) type Piece = (u64, Vec<u8>);

#[derive(Default, Debug)]
pub(crate) struct Collected(pub(crate) Vec<(Entry, Vec<Piece>)>);

impl FileSink for Collected {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> std::io::Result<()> {
        let mut pieces = Vec::new();
        while let Some((at, piece)) = content.next()? {
            pieces.push((at, piece.to_vec()));
        }
        self.0.push((entry.clone(), pieces));
        Ok(())
    }
}

/// One range of a memory file: from, to, and whether it was written.
type PartOf = (u64, u64, bool);

fn memory_file(parts: &[PartOf]) -> Vec<u8> {
    let mut saved = Saved::default();
    let set = saved.room();
    let segments: Vec<_> = parts
        .iter()
        .map(|&(start, end, is_committed)| {
            let info = saved.make("pkg/sentry/pgalloc.memAcctInfo", &[("knownCommitted", truth(is_committed))]);
            let fields = [("Start", uint(start)), ("End", uint(end)), ("Value", info)];
            saved.make("pkg/sentry/pgalloc.memAcctFlatSegment", &fields)
        })
        .collect();
    let array = saved.add(sample::array(&segments));
    let value = saved.make("pkg/sentry/pgalloc.memAcctSet", &[("root", slice(segments.len() as u64, array))]);
    saved.put(set, value);
    let written = parts.iter().filter(|(.., is_committed)| *is_committed);
    let headers = written.flat_map(|(start, end, _)| sample::number(end - start));
    saved.bytes().into_iter().chain(headers).collect()
}

fn owners(names: &[&[u8]]) -> Vec<u8> {
    let mut saved = Saved::default();
    let root = saved.room();
    let names: Vec<_> = names.iter().map(|name| text(name)).collect();
    let array = saved.add(sample::array(&names));
    let fields = [("owners", slice(names.len() as u64, array))];
    let value = saved.make("pkg/sentry/kernel.privateMemoryFileMetadata", &fields);
    saved.put(root, value);
    saved.bytes()
}

fn file_of(bytes: &[u8]) -> (fs::File, u64) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    (file, bytes.len() as u64)
}

/// Reads an image whose root file system's memory file has the ranges `parts`; each page is filled
/// with its own number.
fn read_image(state: &[u8], parts: &[PartOf]) -> Result<Vec<(Entry, Vec<Piece>)>, MemoryImageError> {
    read_within(state, parts, FilesLimits::default())
}

fn plenty() -> Budget {
    Budget::new(FilesLimits::default(), 0)
}

fn read_within(
    state: &[u8],
    parts: &[PartOf],
    limits: FilesLimits,
) -> Result<Vec<(Entry, Vec<Piece>)>, MemoryImageError> {
    let [checkpoint, meta, pages] = image_of(state, parts);
    let mut sink = Collected::default();
    read([file_of(&checkpoint), file_of(&meta), file_of(&pages)], None, limits, &mut sink)?;
    Ok(sink.0)
}

/// Passes the entries of an image with two files to `sink`: one has a hole and attributes, one has
/// two names.
pub(crate) fn an_image(sink: &mut dyn FileSink) -> Result<LeftOut, MemoryImageError> {
    let mut image = Image::new();
    let attributes = map(&[(text(b"user.a"), text(b"1"))]);
    let attributes = image.saved.add(attributes);
    let long = image.file(1 << 40, &[(4096, 16_384, 4096), (1 << 30, (1 << 30) + 4096, 0)], attributes);
    image.enter(b"long", long);
    let short = image.file(1, &[], 0);
    image.enter(b"a", short);
    image.enter(b"b", short);
    let children = image.saved.add(map(&image.root_entries));
    image.directory(image.root, b"", children);
    let parts = [(0, 8192, true), (8192, 12_288, false), (12_288, 16_384, true)];
    let [checkpoint, meta, pages] = image_of(&image.saved.bytes(), &parts);
    read([file_of(&checkpoint), file_of(&meta), file_of(&pages)], None, FilesLimits::default(), sink)
}

/// The files of an image whose content is not parsed.
pub(crate) fn image_files() -> [Vec<u8>; 3] {
    image_of(b"state", &[(0, 8192, true), (8192, 12_288, false), (12_288, 16_384, true)])
}

fn image_of(state: &[u8], parts: &[PartOf]) -> [Vec<u8>; 3] {
    let head = br#"{"compression":"none"}"#;
    let mut checkpoint = b"gVisorSF".to_vec();
    checkpoint.extend((head.len() as u64).to_be_bytes());
    checkpoint.extend(head);
    checkpoint.extend([0; 32]);
    checkpoint.extend(u32::try_from(state.len()).unwrap().to_be_bytes());
    checkpoint.extend(state);
    let meta = [memory_file(&[(0, 4096, true)]), owners(&[b"a:/"]), memory_file(parts)].concat();
    let mut pages = vec![0xee; 4096];
    for (start, end, _) in parts.iter().filter(|(.., is_committed)| *is_committed) {
        pages.extend((start / 4096..end / 4096).flat_map(|page| [u8::try_from(page).unwrap(); 4096]));
    }
    [checkpoint, meta, pages]
}

fn refused(image: Image) -> String {
    image.read().unwrap_err().to_string()
}

#[test]
fn a_file_is_given_with_what_is_known_of_it() {
    let mut image = Image::new();
    let pair = |name: &[u8], value: &[u8]| (text(name), text(value));
    let attributes = map(&[pair(b"user.a", b"1"), pair(b"trusted.overlay.opaque", b"y")]);
    let attributes = image.saved.add(attributes);
    let file = image.file(3, &[(0, 4096, 4096)], attributes);
    image.enter(b"\xff", file);
    let entries = image.read().unwrap();
    let [(root, _), (file, pieces)] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((root.path.as_slice(), &root.kind), (b"".as_slice(), &EntryKind::Directory { replaces: false }));
    assert_eq!((file.path.as_slice(), &file.kind), (b"\xff".as_slice(), &EntryKind::File { bytes: 3 }));
    assert_eq!((file.mode, file.user, file.group, file.modified), (0o4755, 7, 0, (-1, 999_999_999)));
    assert_eq!(file.attributes, [(b"user.a".to_vec(), b"1".to_vec())].into());
    assert_eq!(pieces, &[(0, vec![1, 1, 1])]);
}

#[test]
fn pages_that_were_never_written_are_holes() {
    let mut image = Image::new();
    let file = image.file(1 << 40, &[(4096, 16_384, 4096), (1 << 30, (1 << 30) + 4096, 0)], 0);
    image.enter(b"a", file);
    let entries = image.read().unwrap();
    let page = |number| vec![number; 4096];
    // The second page of the first range is not in the image.
    assert_eq!(entries[1].1, [(4096, page(1)), (12_288, page(3)), (1 << 30, page(0))]);
}

#[test]
fn names_of_the_same_inode_are_hard_links() {
    let mut image = Image::new();
    let file = image.file(1, &[], 0);
    for name in [b"c", b"a", b"b"] {
        image.enter(name, file);
    }
    let entries = image.read().unwrap();
    let kinds: Vec<_> = entries.iter().map(|(entry, _)| (entry.path.as_slice(), entry.kind.clone())).collect();
    let link = EntryKind::HardLink(b"a".to_vec());
    let expected = [(b"a".as_slice(), EntryKind::File { bytes: 1 }), (b"b", link.clone()), (b"c", link)];
    assert_eq!(kinds[1..], expected);
}

#[test]
fn a_name_that_would_lead_elsewhere_is_refused() {
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"/", b"a\0", &[b'a'; 256]] {
        let mut image = Image::new();
        let file = image.file(0, &[], 0);
        image.enter(name, file);
        assert!(refused(image).contains("is not a valid file name"), "{name:?}");
    }
}

#[test]
fn a_name_that_comes_twice_is_refused() {
    let mut image = Image::new();
    for _ in 0..2 {
        let file = image.file(0, &[], 0);
        image.enter(b"a", file);
    }
    assert!(refused(image).contains("the same name"));
}

#[test]
fn a_directory_within_itself_is_refused() {
    let mut image = Image::new();
    let directory = image.saved.room();
    let children = image.saved.add(map(&[(text(b"a"), reference(directory, "dentry"))]));
    image.directory(directory, b"a", children);
    image.root_entries.push((text(b"a"), reference(directory, "dentry")));
    assert!(refused(image).contains("an object is used in two places"));
}

#[test]
fn directories_may_not_share_their_entries() {
    let mut image = Image::new();
    let children = image.saved.add(map(&[]));
    for name in [b"a", b"b"] {
        let directory = image.saved.room();
        image.directory(directory, name, children);
        image.root_entries.push((text(name), reference(directory, "dentry")));
    }
    assert!(refused(image).contains("an object is used in two places"));
}

#[test]
fn files_may_not_share_pages_to_become_more_than_the_image() {
    let mut image = Image::new();
    for name in [b"a", b"b", b"c"] {
        let file = image.file(8192, &[(0, 8192, 0)], 0);
        image.enter(name, file);
    }
    let error = image.read().unwrap_err();
    let error = dorm_engine::chain(&error);
    assert!(error.contains("several files share pages"), "{error}");
}

#[test]
fn parts_of_a_file_that_overlap_or_lie_nowhere_are_refused() {
    for segments in [
        &[(0, 8192, 0), (4096, 12_288, 8192)][..],
        &[(8192, 4096, 0)],
        &[(4096, 4096, 0)],
        &[(0, u64::MAX, u64::MAX - 4096)],
    ] {
        let mut image = Image::new();
        let file = image.file(1 << 20, segments, 0);
        image.enter(b"a", file);
        assert!(image.read().is_err(), "{segments:?}");
    }
    let mut image = Image::new();
    let file = image.file(1 << 20, &[(0, 1 << 40, 1 << 50)], 0);
    image.enter(b"a", file);
    assert_eq!(image.read().unwrap()[1].1, []);
}

#[test]
fn a_long_object_that_is_searched_for_each_entry_is_refused() {
    let mut image = Image::new();
    let inode = image.inode(0o010_644, 0);
    let junk = sample::array(&vec![uint(0); 100_000]);
    let value = image.saved.make("pkg/sentry/fsimpl/tmpfs.namedPipe", &[("junk", junk), ("inode", inode)]);
    let pipe = image.saved.add(value);
    for number in 0..1000 {
        image.enter(format!("{number}").as_bytes(), pipe);
    }
    assert!(refused(image).contains("too many searches"));
}

#[test]
fn an_absurd_length_is_refused() {
    let mut image = Image::new();
    let file = image.file(u64::MAX, &[], 0);
    image.enter(b"a", file);
    assert!(refused(image).contains("larger than the maximum file size"));
}

#[test]
fn a_very_deep_tree_is_read_to_where_paths_end_without_running_out_of_stack() {
    const DEPTH: usize = 20_000;
    let mut image = Image::new();
    let mut below = 0;
    for _ in 0..DEPTH {
        let directory = image.saved.room();
        image.directory(directory, b"d", below);
        below = image.saved.add(map(&[(text(b"d"), reference(directory, "dentry"))]));
    }
    image.root_entries.push((text(b"d"), reference(below - 1, "dentry")));
    let children = image.saved.add(map(&image.root_entries));
    image.directory(image.root, b"", children);
    struct Deepest(usize);
    impl FileSink for Deepest {
        fn take(&mut self, entry: &Entry, _: &mut dyn Content) -> std::io::Result<()> {
            self.0 = self.0.max(entry.path.len());
            Ok(())
        }
    }
    let bytes = image.saved.bytes();
    let graph = kernel(&bytes, &plenty()).unwrap();
    let meta = [memory_file(&[]), owners(&[b"a:/"]), memory_file(&[])].concat();
    let memory = MemoryFiles::read(&meta, &plenty()).unwrap();
    let (upper, tmp) = tree::find(&graph, &memory).unwrap();
    let mut sink = Deepest(0);
    let (pages, length) = file_of(b"");
    let read = Walk::new(&graph, Source::new(pages, length, PagesMap::default()), &mut sink, &plenty())
        .run(&upper, tmp.as_ref());
    let error = read.unwrap_err();
    assert!(error.to_string().contains("longer than the maximum path length"), "{error}");
    assert_eq!(sink.0, 4095);
}

#[test]
fn pages_that_are_not_where_they_should_be_are_an_error() {
    let whole = [memory_file(&[(0, 4096, true)]), owners(&[b"a:/"]), memory_file(&[(0, 4096, true)])].concat();
    assert_eq!(MemoryFiles::read(&whole, &plenty()).unwrap().bytes, 8192);
    for length in 0..whole.len() {
        assert!(MemoryFiles::read(&whole[..length], &plenty()).is_err(), "{length}");
    }
    for wrong in [
        [memory_file(&[]), memory_file(&[]), owners(&[b"a:/"])].concat(),
        [memory_file(&[]), owners(&[b"a:/", b"a:/"]), memory_file(&[]), memory_file(&[])].concat(),
        [owners(&[b"a:/"]), memory_file(&[]), memory_file(&[])].concat(),
        [sample::number(4096), whole.clone()].concat(),
        [whole.clone(), sample::number(4096)].concat(),
        [memory_file(&[(4096, 8192, true), (0, 4096, true)]), owners(&[])].concat(),
    ] {
        assert!(MemoryFiles::read(&wrong, &plenty()).is_err());
    }
}

/// The directory of the fuzzers' seeds, which are rewritten if `DORM_UPDATE` is set.
const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/memory");

#[test]
fn images_that_fuzzers_begin_with_pass() {
    let mut image = Image::new();
    let attributes = map(&[(text(b"user.a"), text(b"1"))]);
    let attributes = image.saved.add(attributes);
    let file = image.file(9000, &[(0, 4096, 0), (8192, 12_288, 4096)], attributes);
    image.enter(b"a", file);
    image.enter(b"b", file);
    let children = image.saved.add(map(&image.root_entries));
    image.directory(image.root, b"", children);
    let meta = [memory_file(&[(0, 4096, true)]), owners(&[b"a:/"]), memory_file(&[(0, 8192, true)])].concat();
    let length = u16::try_from(meta.len()).unwrap().to_le_bytes();
    let whole = [vec![0], length.to_vec(), meta, image.saved.bytes()].concat();
    if std::env::var_os("DORM_UPDATE").is_some() {
        fs::create_dir_all(SEEDS).unwrap();
        fs::write(format!("{SEEDS}/two-names"), &whole).unwrap();
    }
    for seed in fs::read_dir(SEEDS).unwrap() {
        fuzzing::image(&fs::read(seed.unwrap().path()).unwrap());
    }
}

/// Returns an image with this many empty files.
fn files(count: usize) -> Image {
    let mut image = Image::new();
    for number in 0..count {
        let file = image.file(0, &[], 0);
        image.enter(format!("file-{number:06}").as_bytes(), file);
    }
    image
}

#[test]
fn more_files_than_allowed_are_refused_with_the_option() {
    let limits = FilesLimits { entries: 20, ..FilesLimits::default() };
    assert_eq!(files(20).read_within(limits).unwrap().len(), 21, "the root does not count");
    let error = files(21).read_within(limits).unwrap_err();
    assert!(error.to_string().contains("--snapshot-files 20"), "{error}");
}

#[test]
fn an_image_that_takes_more_memory_than_allowed_is_refused_with_the_option() {
    let limits = FilesLimits { memory_bytes: 1 << 20, ..FilesLimits::default() };
    assert_eq!(files(100).read_within(limits).unwrap().len(), 101);
    let error = files(10_000).read_within(limits).unwrap_err();
    assert!(error.to_string().contains("--snapshot-memory-mib 1 "), "{error}");
}

#[test]
fn objects_that_are_announced_and_tiny_take_no_more_than_allowed() {
    // Each takes three bytes of the image, and more than thirty of memory.
    let count = 2_000_000_u64;
    let mut state = sample::number((1 << 63) | count);
    for number in 1..=count {
        state.extend(uint(number));
        state.extend(nil());
    }
    let limits = FilesLimits { memory_bytes: 32 << 20, ..FilesLimits::default() };
    let error = read_within(&state, &[(0, 4096, true)], limits).unwrap_err();
    assert!(error.to_string().contains("--snapshot-memory-mib 32 "), "{error}");
}

#[test]
fn directories_in_directories_end_where_paths_do() {
    let mut image = Image::new();
    let name = [b'd'; 255];
    let mut inner = 0;
    for _ in 0..20 {
        let directory = image.saved.room();
        image.directory(directory, &name, inner);
        inner = image.saved.add(map(&[(text(&name), reference(directory, "dentry"))]));
    }
    image.directory(image.root, b"", inner);
    let error = read_image(&image.saved.bytes(), &[(0, 4096, true)]).unwrap_err();
    assert!(error.to_string().contains("longer than the maximum path length"), "{error}");
}

#[test]
fn long_paths_count_as_several_files() {
    let limits = FilesLimits { entries: 4, ..FilesLimits::default() };
    let budget = Budget::new(limits, 0);
    budget.take_entry(&[b'x'; 900]).unwrap();
    let error = budget.take_entry(&[b'x'; 900]).unwrap_err();
    assert!(error.to_string().contains("--snapshot-files 4"), "{error}");
}
