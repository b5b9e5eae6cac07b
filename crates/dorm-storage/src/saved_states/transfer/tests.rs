//! Export files: an import on another host restores the content, every change of the file on the
//! way is detected, and nothing of a refused file stays.

mod seeds;

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;

use dorm_engine::{Entry, EntryKind, FileSink, NoContent};
use dorm_lifecycle::SnapshotId;
use dorm_steps::pass;
use proptest::prelude::*;
use tempfile::TempDir;

use super::{BLOCK, ExportNote, Exported, ImportAs, Imported, MANIFEST, head, manifest, padding};
use crate::saved_states::tests::{facts, id, open};
use crate::saved_states::tree_tests::{entry, written};
use crate::saved_states::{Below, SavedStateFacts, WrittenFile, listing};
use crate::{Storage, StorageError};

const GOLDEN: &str = include_str!("tests/manifest-v1.json");

fn home() -> (TempDir, Storage) {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    (home, storage)
}

fn note() -> ExportNote {
    ExportNote {
        snapshot: SnapshotId::from_random([3; 20]),
        parents: vec![SnapshotId::from_random([4; 20])],
        labels: BTreeMap::from([("why".to_owned(), "a test".to_owned())]),
    }
}

fn name() -> ImportAs {
    ImportAs { saved_state: id(50), layer: id(51) }
}

/// A memory saved state that is based on layer 2, which is based on layer 1.
async fn of_memory(storage: &Storage) {
    written(storage, 1, None).await;
    let draft = storage.begin(&id(2), 0).await.unwrap();
    let mut tree = draft.tree(Below::default()).unwrap();
    let directory = Entry { mode: 0o700, ..entry(b"more", EntryKind::Directory { replaces: false }) };
    for entry in [directory, entry(b"dir", EntryKind::Removed), entry(b"more/link", EntryKind::Symlink(b"x".to_vec()))]
    {
        tree.take(&entry, &mut NoContent).unwrap();
    }
    draft.commit_tree(SavedStateFacts { layer: Some(id(1)), ..facts() }, tree).await.unwrap();
    let draft = storage.begin(&id(3), 0).await.unwrap();
    fs::write(draft.directory().join("pages.img"), vec![42; 70_000]).unwrap();
    fs::create_dir(draft.directory().join("more")).unwrap();
    fs::write(draft.directory().join("more/state"), b"").unwrap();
    let files = [("pages.img", 70_000), ("more/state", 0)];
    let files = files.map(|(name, bytes)| WrittenFile { name: name.into(), bytes, shared_with: None, blake3: None });
    draft.commit(SavedStateFacts { layer: Some(id(2)), ..facts() }, &files).await.unwrap();
}

async fn exported(storage: &Storage, number: u8) -> (Exported, Vec<u8>) {
    let export = storage.export(&id(number), note()).await.unwrap();
    let mut file = Vec::new();
    export.write_to(&mut file).unwrap();
    assert_eq!(export.bytes(), file.len() as u64);
    (export.about().clone(), file)
}

async fn imported(storage: &Storage, file: &[u8]) -> Result<Imported, StorageError> {
    let incoming = storage.open_export(Cursor::new(file.to_vec())).await?;
    storage.import_export(incoming, &name()).await
}

async fn is_refused(storage: &Storage, file: &[u8], how: &str) {
    let error = imported(storage, file).await.map(|_| ()).expect_err(how);
    let is_named =
        matches!(error, StorageError::Export { .. } | StorageError::Format { .. } | StorageError::NoRoom { .. });
    assert!(is_named, "{how}: {error:?}");
    assert_eq!(
        (storage.saved_states().await.unwrap(), storage.drafts().await.unwrap()),
        (vec![], vec![]),
        "{how}: {error}"
    );
}

#[tokio::test]
async fn files_come_out_as_they_went_in() {
    let ((_from, from), (_to, to)) = (home(), home());
    let saved_state = written(&from, 1, None).await;
    let (about, file) = exported(&from, 1).await;
    assert!(file.len() < 100_000, "holes are not in it: {}", file.len());
    let incoming = to.open_export(Cursor::new(file.clone())).await.unwrap();
    assert_eq!(*incoming.about(), about);
    assert_eq!((about.note.clone(), about.is_of_memory()), (note(), false));
    let Imported { saved_state: found, layer } = to.import_export(incoming, &name()).await.unwrap();
    let flat = from.flatten(&saved_state.id, &id(9)).await.unwrap();
    assert_eq!((found.tree, &found.files, layer), (flat.tree, &flat.files, None));
    assert_eq!(to.check(&id(50)).await.unwrap(), found);
    assert_eq!(to.listing(&id(50)).await.unwrap(), from.listing(&id(9)).await.unwrap());
    assert_eq!(to.saved_states().await.unwrap(), [id(50)]);
    assert_eq!(exported(&from, 1).await.1, file, "the same again is the same file");
}

#[tokio::test]
async fn memory_comes_with_all_layers_below_it_as_one() {
    let ((_from, from), (_to, to)) = (home(), home());
    of_memory(&from).await;
    let (about, file) = exported(&from, 3).await;
    assert!(about.is_of_memory());
    let Imported { saved_state, layer } = imported(&to, &file).await.unwrap();
    assert_eq!((saved_state.id.clone(), saved_state.facts.layer.clone()), (id(50), Some(id(51))));
    assert_eq!(fs::read(saved_state.directory.join("pages.img")).unwrap(), [42; 70_000]);
    assert_eq!(layer.unwrap().facts.layer, None);
    let flat = from.flatten(&id(2), &id(9)).await.unwrap();
    assert_eq!(to.listing(&id(51)).await.unwrap(), from.listing(&flat.id).await.unwrap());
    to.check(&id(50)).await.unwrap();
    to.check(&id(51)).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_cut_short_anywhere_is_refused_and_leaves_nothing() {
    let ((_from, from), (_to, to)) = (home(), home());
    of_memory(&from).await;
    for number in [1, 3] {
        let file = exported(&from, number).await.1;
        for part in 0..200 {
            let length = file.len() * part / 200 + part % 7;
            is_refused(&to, &file[..length], &format!("saved state {number}, {length} bytes")).await;
        }
        is_refused(&to, &file[..file.len() - 1], "one byte").await;
        is_refused(&to, &[&file[..], b"x"].concat(), "one byte more").await;
    }
}

#[tokio::test]
async fn a_file_with_one_bit_changed_anywhere_is_refused_and_leaves_nothing() {
    let ((_from, from), (_to, to)) = (home(), home());
    of_memory(&from).await;
    for number in [1, 3] {
        let file = exported(&from, number).await.1;
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        for _ in 0..200 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state % file.len() as u64).unwrap();
            let mut changed = file.clone();
            changed[at] ^= 1 << (state >> 40 & 7);
            is_refused(&to, &changed, &format!("saved state {number}, byte {at}")).await;
        }
    }
}

/// Returns a file with the manifest `lie` and the entries of `file`.
fn with_manifest(lie: &Exported, file: &[u8]) -> Vec<u8> {
    let text = manifest::text(lie).unwrap();
    let size = tar::Header::from_byte_slice(&file[..512]).entry_size().unwrap();
    let rest = usize::try_from(BLOCK + size + padding(size)).unwrap();
    [&entry_of(MANIFEST, &text)[..], &file[rest..]].concat()
}

fn entry_of(name: &str, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u64;
    let zeros = vec![0; usize::try_from(padding(length)).unwrap()];
    [head(name, length).unwrap().as_bytes(), bytes, &zeros].concat()
}

#[tokio::test]
async fn a_manifest_that_lies_is_found_out() {
    let ((_from, from), (_to, to)) = (home(), home());
    of_memory(&from).await;
    let (about, file) = exported(&from, 3).await;
    type Lie = fn(&mut Exported);
    let lies: [(&str, Lie); 16] = [
        ("less memory", |it| it.memory[1].bytes -= 1),
        ("more memory", |it| it.memory[1].bytes += 1),
        ("absurdly much memory", |it| it.memory[1].bytes = u64::MAX),
        ("more memory than any disk", |it| it.memory[1].bytes = 1 << 60),
        ("another hash of memory", |it| it.memory[1].blake3 = "0".repeat(64)),
        ("no hash", |it| it.memory[1].blake3 = "../..".to_owned()),
        ("a file twice", |it| it.memory[0] = it.memory[1].clone()),
        ("a file outside", |it| it.memory[1].name = "../pages.img".into()),
        ("an absolute file", |it| it.memory[1].name = "/tmp/pages.img".into()),
        ("the manifest of a saved state", |it| it.memory[1].name = "manifest.json".into()),
        ("one file less", |it| drop(it.memory.pop())),
        ("one entry less", |it| it.tree.as_mut().unwrap().facts.entries -= 1),
        ("one byte of files more", |it| it.tree.as_mut().unwrap().facts.bytes += 1),
        ("less data", |it| it.tree.as_mut().unwrap().data_bytes = 0),
        ("more entries than there can be", |it| it.tree.as_mut().unwrap().facts.entries = u64::MAX),
        ("no tree", |it| it.tree = None),
    ];
    for (how, lie) in lies {
        let mut told = about.clone();
        lie(&mut told);
        is_refused(&to, &with_manifest(&told, &file), how).await;
    }
    let mut told = about.clone();
    told.facts.resources.processes = 0;
    is_refused(&to, &with_manifest(&told, &file), "limits that cannot be").await;
    imported(&to, &with_manifest(&about, &file)).await.unwrap();
}

/// Returns a file of a tree with these lines and no content, and a manifest that matches them.
fn of_lines(about: &Exported, lines: &[Entry]) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in lines {
        listing::write(&mut text, &crate::Listed { entry: entry.clone(), hash: None }).unwrap();
    }
    of_text(about, lines.len() as u64, &text)
}

fn of_text(about: &Exported, entries: u64, text: &[u8]) -> Vec<u8> {
    let mut told = Exported { memory: Vec::new(), ..about.clone() };
    let tree = told.tree.as_mut().unwrap();
    (tree.facts.entries, tree.facts.bytes, tree.data_bytes) = (entries, 0, 0);
    tree.listing_bytes = text.len() as u64;
    tree.listing_blake3 = blake3::hash(text).to_hex().to_string();
    [entry_of(MANIFEST, &manifest::text(&told).unwrap()), entry_of("listing", text), vec![0; 1024]].concat()
}

#[tokio::test]
async fn a_listing_that_leads_out_of_its_tree_is_refused() {
    let ((_from, from), (to_home, to)) = (home(), home());
    of_memory(&from).await;
    let about = exported(&from, 3).await.0;
    let link = entry(b"out", EntryKind::Symlink(to_home.path().as_os_str().as_encoded_bytes().to_vec()));
    let fifo = |path: &[u8]| entry(path, EntryKind::Fifo);
    let directory = |path: &[u8]| entry(path, EntryKind::Directory { replaces: false });
    imported(&to, &of_lines(&about, &[link.clone(), fifo(b"pipe")])).await.unwrap();
    to.remove(&id(50)).await.unwrap();
    let cases: Vec<(&str, Vec<Entry>)> = vec![
        ("above", vec![fifo(b"../evil")]),
        ("absolute", vec![fifo(b"/tmp/evil")]),
        ("an empty part", vec![directory(b"a"), fifo(b"a//evil")]),
        ("a NUL", vec![fifo(b"a\0b")]),
        ("through a link", vec![link.clone(), fifo(b"out/evil")]),
        ("a link as a directory", vec![link.clone(), directory(b"out")]),
        ("a hard link to outside", vec![entry(b"hard", EntryKind::HardLink(b"../../x".to_vec()))]),
        ("a hard link to nothing", vec![entry(b"hard", EntryKind::HardLink(b"nothing".to_vec()))]),
        ("a hard link through a link", vec![link.clone(), entry(b"hard", EntryKind::HardLink(b"out/data".to_vec()))]),
        ("a name twice", vec![fifo(b"a"), fifo(b"a")]),
        ("the root twice", vec![directory(b""), directory(b"")]),
        ("no directory above", vec![fifo(b"a/b")]),
        ("an owner outside", vec![Entry { user: 70_000, ..fifo(b"a") }]),
        ("a name too long", vec![fifo(&[b'a'; 256])]),
    ];
    for (how, lines) in cases {
        is_refused(&to, &of_lines(&about, &lines), how).await;
    }
    assert!(!to_home.path().join("evil").exists());
    is_refused(&to, &of_text(&about, 1, b"{}\n"), "no entry").await;
    is_refused(&to, &of_text(&about, 1, b"\n"), "an empty line").await;
    is_refused(&to, &of_text(&about, 1, b"{"), "no line").await;
    let mut text = Vec::new();
    listing::write(&mut text, &crate::Listed { entry: fifo(b"a"), hash: None }).unwrap();
    text.insert(1, b' ');
    is_refused(&to, &of_text(&about, 1, &text), "a line as we do not write it").await;
}

#[tokio::test]
async fn entries_in_another_order_twice_missing_or_too_many_are_refused() {
    let ((_from, from), (_to, to)) = (home(), home());
    of_memory(&from).await;
    let (_, file) = exported(&from, 3).await;
    let mut entries = Vec::new();
    let mut at = 0;
    while file[at] != 0 {
        let size = tar::Header::from_byte_slice(file[at..at + 512].try_into().unwrap()).entry_size().unwrap();
        let length = usize::try_from(BLOCK + size + padding(size)).unwrap();
        entries.push(file[at..at + length].to_vec());
        at += length;
    }
    let end = vec![0; 1024];
    let joined = |entries: &[Vec<u8>]| [entries.concat(), end.clone()].concat();
    assert_eq!(joined(&entries), file);
    for number in 0..entries.len() {
        let mut other = entries.clone();
        other.remove(number);
        is_refused(&to, &joined(&other), &format!("entry {number} missing")).await;
        let mut other = entries.clone();
        other.insert(number, entries[number].clone());
        is_refused(&to, &joined(&other), &format!("entry {number} twice")).await;
        let mut other = entries.clone();
        other.insert(number, entry_of("more", b"content"));
        is_refused(&to, &joined(&other), &format!("another before entry {number}")).await;
    }
    entries.swap(0, 1);
    is_refused(&to, &joined(&entries), "the manifest not first").await;
    is_refused(&to, b"", "nothing").await;
    is_refused(&to, &[7; 4096], "noise").await;
}

#[tokio::test]
async fn a_newer_format_is_refused_by_its_number() {
    let (_to, to) = home();
    let text = GOLDEN.replace("\"format\": 1", "\"format\": 2");
    let error = imported(&to, &entry_of(MANIFEST, text.as_bytes())).await.unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[tokio::test]
async fn the_manifest_is_written_as_it_ever_was() {
    let (_from, from) = home();
    of_memory(&from).await;
    let text = String::from_utf8(manifest::text(&exported(&from, 3).await.0).unwrap()).unwrap();
    if std::env::var_os("DORM_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/saved_states/transfer/tests/manifest-v1.json");
        return fs::write(path, text).unwrap();
    }
    assert_eq!(text, GOLDEN);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_after_any_manifest_are_refused(lines in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (_to, to) = home();
            is_refused(&to, &[&entry_of(MANIFEST, GOLDEN.as_bytes())[..], &lines].concat(), "noise").await;
        });
    }
}

#[tokio::test]
async fn nothing_is_imported_or_read_into_the_reserve_of_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    of_memory(&storage).await;
    for number in [1, 3] {
        let (_, file) = exported(&storage, number).await;
        let other = tempfile::tempdir().unwrap();
        let full = open(other.path(), pass()).limited(u64::MAX, crate::ImportLimits::default());
        let error = imported(&full, &file).await.unwrap_err();
        assert!(matches!(error, StorageError::Reserve { .. }), "{error}");
        assert_eq!((full.saved_states().await.unwrap(), full.drafts().await.unwrap()), (Vec::new(), Vec::new()));
        // The same holds for files that are read from a memory image.
        let draft = full.begin(&id(9), 0).await.unwrap();
        let mut tree = draft.tree(Below::default()).unwrap();
        let error = tree.take(&entry(b"a", EntryKind::Fifo), &mut NoContent).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    }
}
