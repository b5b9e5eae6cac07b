//! Trees: they hold what was written, and every later change is detected.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dorm_engine::{Content, Entry, EntryKind, FileSink, NoContent};

use dorm_steps::pass;

use super::tests::{facts, id, is_golden, open};
use crate::{Below, SavedState, Storage, StorageError, TreeFacts};

/// Pieces of content with holes between them.
pub(super) struct Pieces(Vec<(u64, Vec<u8>)>, usize);

impl Pieces {
    pub(super) fn whole(bytes: &[u8]) -> Self {
        Self(vec![(0, bytes.to_vec())], 0)
    }
}

impl Content for Pieces {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.1 += 1;
        Ok(self.0.get(self.1 - 1).map(|(at, bytes)| (*at, &bytes[..])))
    }
}

pub(super) fn entry(path: &[u8], kind: EntryKind) -> Entry {
    let attributes = BTreeMap::new();
    Entry {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        user: 1,
        group: 2,
        modified: (1_000_000_000, 123_456_789),
        attributes,
    }
}

fn all() -> Vec<(Entry, Pieces)> {
    let none = || Pieces(Vec::new(), 0);
    let directory = |path: &[u8], replaces| Entry { mode: 0o755, ..entry(path, EntryKind::Directory { replaces }) };
    let mut marked = entry(b"dir/file", EntryKind::File { bytes: 5 });
    marked.mode = 0o4755;
    marked.attributes.insert(b"user.comment".to_vec(), b"a \xff value".to_vec());
    marked.attributes.insert(b"trusted.overlay.origin".to_vec(), b"not ours".to_vec());
    vec![
        (directory(b"", false), none()),
        (directory(b"dir", true), none()),
        (marked, Pieces(vec![(0, b"hello".to_vec())], 0)),
        (
            entry(b"dir/sparse", EntryKind::File { bytes: 1 << 30 }),
            Pieces(vec![(4096, vec![7; 4096]), (900 << 20, vec![8; 10])], 0),
        ),
        (entry(b"dir/empty", EntryKind::File { bytes: 0 }), none()),
        (entry(b"dir/\xff\n name", EntryKind::Symlink(b"/nowhere/\xfe".to_vec())), none()),
        (entry(b"link", EntryKind::HardLink(b"dir/file".to_vec())), none()),
        (entry(b"pipe", EntryKind::Fifo), none()),
        (entry(b"gone", EntryKind::Removed), none()),
    ]
}

pub(crate) async fn written(storage: &Storage, number: u8, layer: Option<u8>) -> SavedState {
    let draft = storage.begin(&id(number), 0).await.unwrap();
    fs::write(draft.memory().unwrap().join("pages"), "of no use any more").unwrap();
    let mut tree = draft.tree(Below::default()).unwrap();
    for (entry, mut content) in all() {
        tree.take(&entry, &mut content).unwrap();
    }
    let facts = super::SavedStateFacts { layer: layer.map(id), ..facts() };
    draft.commit_tree(facts, tree).await.unwrap()
}

fn at(saved_state: &SavedState, path: &[u8]) -> PathBuf {
    saved_state.root().join(std::ffi::OsStr::from_bytes(path))
}

#[tokio::test]
async fn everything_of_a_tree_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), pass());
    let saved_state = written(&storage, 1, None).await;
    assert_eq!(saved_state.tree, Some(TreeFacts { entries: 9, bytes: 5 + (1 << 30) }));
    assert!(!saved_state.directory.join("memory").exists());
    let file = fs::symlink_metadata(at(&saved_state, b"dir/file")).unwrap();
    let base = dorm_guest_ids::GuestIds::DEFAULT.base();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777, file.nlink()), (base + 1, base + 2, 0o4755, 2));
    assert_eq!((file.mtime(), file.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!(fs::symlink_metadata(at(&saved_state, b"dir")).unwrap().mtime(), 1_000_000_000, "of a directory, too");
    let sparse = fs::symlink_metadata(at(&saved_state, b"dir/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20 && sparse.len() == 1 << 30, "{} blocks", sparse.blocks());
    let link = fs::read_link(at(&saved_state, b"dir/\xff\n name")).unwrap();
    assert_eq!(link.as_os_str().as_bytes(), b"/nowhere/\xfe");
    assert!(fs::symlink_metadata(at(&saved_state, b"pipe")).unwrap().file_type().is_fifo());
    let gone = fs::symlink_metadata(at(&saved_state, b"gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let mut value = [0; 16];
    let found = rustix::fs::getxattr(at(&saved_state, b"dir"), "trusted.overlay.opaque", &mut value[..]).unwrap();
    assert_eq!(value[..found], *b"y");
    assert!(rustix::fs::getxattr(at(&saved_state, b"dir/file"), "trusted.overlay.origin", &mut value[..]).is_err());
    let again = open(directory.path(), pass());
    let listed = again.listing(&id(1)).await.unwrap();
    assert_eq!(
        listed.iter().map(|listed| listed.entry.clone()).collect::<Vec<_>>(),
        all().into_iter().map(|(entry, _)| entry).collect::<Vec<_>>()
    );
    assert_eq!(again.check(&id(1)).await.unwrap(), saved_state);
    assert_eq!(again.saved_state(&id(1)).await.unwrap(), saved_state);
}

#[tokio::test]
async fn trees_are_still_written_as_in_the_first_format() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), pass());
    written(&storage, 1, None).await;
    let saved_state = written(&storage, 2, Some(1)).await;
    for (name, golden) in [("manifest.json", "manifest-of-tree-v1.json"), ("listing", "listing-v1.txt")] {
        is_golden(&fs::read_to_string(saved_state.directory.join(name)).unwrap(), golden);
    }
}

#[tokio::test]
async fn whatever_is_changed_in_a_tree_is_found() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 11] = [
        ("content", |root| fs::write(root.join("dir/file"), "Hello").unwrap()),
        ("a hole is filled", |root| {
            fs::File::options().write(true).open(root.join("dir/sparse")).unwrap().write_all_at(b"x", 5 << 20).unwrap();
        }),
        ("length", |root| fs::write(root.join("dir/empty"), "x").unwrap()),
        ("mode", |root| fs::set_permissions(root.join("dir/file"), fs::Permissions::from_mode(0o755)).unwrap()),
        ("owner", |root| std::os::unix::fs::chown(root.join("dir"), Some(0), None).unwrap()),
        ("missing", |root| fs::remove_file(root.join("gone")).unwrap()),
        ("another", |root| fs::write(root.join("dir/new"), "").unwrap()),
        ("link", |root| {
            fs::remove_file(root.join("link")).unwrap();
            fs::copy(root.join("dir/file"), root.join("link")).unwrap();
        }),
        ("kind", |root| {
            fs::remove_file(root.join("pipe")).unwrap();
            fs::write(root.join("pipe"), "").unwrap();
        }),
        ("attribute", |root| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(root.join("dir/file"), "user.comment", b"other", flags).unwrap();
        }),
        ("opaque", |root| rustix::fs::removexattr(root.join("dir"), "trusted.overlay.opaque").unwrap()),
    ];
    for (what, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let saved_state = written(&open(directory.path(), pass()), 1, None).await;
        damage(&saved_state.root());
        let later = open(directory.path(), pass());
        for found in [later.check(&id(1)).await, later.layers(&id(1)).await.map(|mut layers| layers.remove(0))] {
            assert!(matches!(found, Err(StorageError::Damaged { .. })), "{what}: {found:?}");
        }
    }
}

#[tokio::test]
async fn layers_are_found_from_the_topmost_down() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), pass());
    written(&storage, 1, None).await;
    written(&storage, 2, Some(1)).await;
    let top = written(&storage, 3, Some(2)).await;
    let found: Vec<_> = storage.layers(&id(3)).await.unwrap().into_iter().map(|layer| layer.id).collect();
    assert_eq!(found, [id(3), id(2), id(1)]);
    let sizes = storage.sizes(&id(3)).await.unwrap();
    assert_eq!((sizes.alone, sizes.shared), (top.bytes(), 2 * top.bytes()));
    storage.remove(&id(1)).await.unwrap();
    assert!(matches!(storage.layers(&id(3)).await, Err(StorageError::Missing(_))));
}

#[tokio::test]
async fn what_cannot_be_in_a_sandbox_is_refused_and_nothing_outside_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), pass());
    let mut number = 0;
    let mut refused = async |entry: Entry, content: &mut dyn Content| {
        number += 1;
        let draft = storage.begin(&id(number), 0).await.unwrap();
        let mut tree = draft.tree(Below::default()).unwrap();
        tree.take(&self::entry(b"way", EntryKind::Symlink(b"/tmp".to_vec())), &mut NoContent).unwrap();
        tree.take(&self::entry(b"file", EntryKind::File { bytes: 0 }), &mut NoContent).unwrap();
        // Small files are written together, so some errors occur only at the end.
        let said = tree.take(&entry, content).and_then(|()| tree.finish()).unwrap_err().to_string();
        assert!(said.starts_with("cannot keep '/"), "{}: {said}", entry.path.escape_ascii());
        draft.abandon().await.unwrap();
    };
    let file = || EntryKind::File { bytes: 0 };
    for (path, kind) in [
        (&b"../out"[..], file()),
        (b"/etc/passwd", file()),
        (b"a//b", file()),
        (b"a/./b", file()),
        (b"nul\0", file()),
        (b"way/into", file()),
        (b"no/parent", file()),
        (b"file", file()),
        (b"hard", EntryKind::HardLink(b"../../../etc/passwd".to_vec())),
        (b"", EntryKind::Fifo),
    ] {
        refused(entry(path, kind), &mut NoContent).await;
    }
    let mut foreign = entry(b"foreign", file());
    foreign.user = 70_000;
    refused(foreign, &mut NoContent).await;
    for bytes in [8, 300 << 10] {
        let pieces = [
            vec![(0, vec![1; 3]), (2, vec![1])],
            vec![(0, vec![1; (bytes + 1) as usize])],
            vec![(u64::MAX, vec![1; 2])],
        ];
        for pieces in pieces {
            refused(entry(b"long", EntryKind::File { bytes }), &mut Pieces(pieces, 0)).await;
        }
    }
    assert!(!Path::new("/tmp/into").exists());
}

#[tokio::test]
async fn whatever_step_of_a_tree_fails_it_is_wholly_there_or_not_there() {
    use crate::steps::Step;
    use crate::steps::armed::{Armed, Ending};
    let steps = [
        Step::TreeWritten,
        Step::MemoryRemoved,
        Step::TreeSynced,
        Step::ManifestWritten,
        Step::DraftSynced,
        Step::Renamed,
        Step::ParentSynced,
    ];
    for (step, ending) in steps.into_iter().flat_map(|step| [(step, Ending::Fails), (step, Ending::Dies)]) {
        let directory = tempfile::tempdir().unwrap();
        let armed = Armed::new();
        let storage = open(directory.path(), armed.clone());
        let draft = storage.begin(&id(1), 0).await.unwrap();
        let mut tree = draft.tree(Below::default()).unwrap();
        for (entry, mut content) in all() {
            tree.take(&entry, &mut content).unwrap();
        }
        armed.arm(step, ending);
        assert!(draft.commit_tree(facts(), tree).await.is_err(), "{step:?} {ending:?}");
        let later = open(directory.path(), pass());
        match later.check(&id(1)).await {
            Ok(_) => assert_eq!((ending, matches!(step, Step::Renamed | Step::ParentSynced)), (Ending::Dies, true)),
            Err(StorageError::Missing(_)) => {}
            Err(other) => panic!("{step:?} {ending:?}: {other}"),
        }
        later.remove(&id(1)).await.unwrap();
        let left: Vec<_> = fs::read_dir(directory.path().join("data/saved_states")).unwrap().collect();
        assert!(left.is_empty(), "{step:?} {ending:?}: {left:?}");
    }
}

/// Mounts trees over an empty image and lists the visible entries: path, kind, mode, owner,
/// content.
pub(super) fn seen(layers: &[&SavedState], image: &Path, scratch: &Path) -> Vec<String> {
    let mount = scratch.join("mount");
    let lower: Vec<_> = layers.iter().map(|layer| layer.root()).chain([image.to_owned()]).collect();
    let lower: Vec<_> = lower.iter().map(|path| path.to_str().unwrap()).collect();
    let options = std::ffi::CString::new(format!("lowerdir={}", lower.join(":"))).unwrap();
    fs::create_dir(&mount).unwrap();
    rustix::mount::mount("test", &mount, "overlay", rustix::mount::MountFlags::RDONLY, options.as_c_str()).unwrap();
    let listed = std::panic::catch_unwind(|| walk(&mount));
    rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::empty()).unwrap();
    fs::remove_dir(&mount).unwrap();
    listed.unwrap()
}

pub(super) fn walk(root: &Path) -> Vec<String> {
    let (mut open, mut all) = (vec![root.to_owned()], Vec::new());
    while let Some(path) = open.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let content = if facts.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        all.push(format!("{name} {:o} {} {} {content}", facts.mode(), facts.uid(), facts.mtime()));
        if facts.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all.sort();
    all
}

/// A few names at which entries are randomly created, replaced and removed.
pub(super) fn random_layer(
    random: &mut u64,
    number: u8,
    before: &mut BTreeMap<&'static str, bool>,
) -> Vec<(Entry, Pieces)> {
    let mut next = |below: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % below
    };
    let root = Entry { mode: 0o755, ..entry(b"", EntryKind::Directory { replaces: false }) };
    let mut taken: Vec<(Entry, Pieces)> = vec![(root, Pieces(Vec::new(), 0))];
    let mut here: BTreeMap<&str, bool> = BTreeMap::new();
    for path in ["a", "a-b", "a/x", "a/y", "a/y/deep", "b", "b/x", "c", "d"] {
        let above = path.rsplit_once('/').map(|(above, _)| above);
        if above.is_some_and(|above| here.get(above) != Some(&true)) {
            continue;
        }
        let mut new = entry(path.as_bytes(), EntryKind::Removed);
        new.modified = (1_000_000_000 + i64::from(number), 0);
        let mut content = Pieces(Vec::new(), 0);
        match next(6) {
            0 => continue,
            1 => {}
            2 => {
                let text = format!("{path} of {number}").into_bytes();
                new.kind = EntryKind::File { bytes: text.len() as u64 };
                content = Pieces(vec![(0, text)], 0);
            }
            3 if taken.iter().any(|(other, _)| matches!(other.kind, EntryKind::File { .. })) => {
                let first = taken.iter().find(|(other, _)| matches!(other.kind, EntryKind::File { .. })).unwrap();
                new.kind = EntryKind::HardLink(first.0.path.clone());
            }
            _ => {
                // Where the layers below have no directory, the engine reports that this one
                // replaces any other entry.
                let replaces = next(3) == 0;
                new = Entry { mode: 0o700 + u32::from(number), ..new };
                new.kind = EntryKind::Directory { replaces };
                here.insert(path, true);
            }
        }
        before.insert(path, matches!(new.kind, EntryKind::Directory { .. }));
        taken.push((new, content));
    }
    taken
}

#[tokio::test]
async fn layers_that_are_merged_look_as_they_did() {
    for seed in 1..=60 {
        let scratch = tempfile::tempdir().unwrap();
        let storage = open(scratch.path(), pass());
        let image = scratch.path().join("images").join(facts().image.as_str()).join("rootfs");
        fs::create_dir_all(image.join("a/y")).unwrap();
        fs::write(image.join("a/x"), "of the image").unwrap();
        fs::write(image.join("b"), "of the image").unwrap();
        fs::create_dir(image.join("d")).unwrap();
        let (mut random, mut before, mut layers) = (seed, BTreeMap::new(), Vec::new());
        for number in 1..=5 {
            let draft = storage.begin(&id(number), 0).await.unwrap();
            let top = (number > 1).then(|| id(number - 1));
            let below = storage.below(&facts().image, top.as_ref()).await.unwrap();
            let mut tree = draft.tree(below).unwrap();
            for (entry, mut content) in random_layer(&mut random, number, &mut before) {
                tree.take(&entry, &mut content).unwrap();
            }
            let facts = super::SavedStateFacts { layer: top, ..facts() };
            layers.insert(0, draft.commit_tree(facts, tree).await.unwrap());
        }
        let merged = storage.flatten(&id(5), &id(20)).await.unwrap();
        assert_eq!((merged.facts.layer.clone(), storage.layers(&id(20)).await.unwrap().len()), (None, 1));
        let all: Vec<&SavedState> = layers.iter().collect();
        assert_eq!(seen(&[&merged], &image, scratch.path()), seen(&all, &image, scratch.path()), "seed {seed}");
    }
}
