use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dorm_lifecycle::{Resources, SandboxId, SavedStateId, Timestamp};
use dorm_steps::{AnySteps, pass};
use tempfile::TempDir;

use super::{Expected, SavedStateFacts, WrittenFile};
use crate::error::StorageError;
use crate::reread;
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending, InPlace};
use crate::storage::Storage;

pub(super) fn id(seed: u8) -> SavedStateId {
    SavedStateId::from_random([seed; 20])
}

pub(super) fn facts() -> SavedStateFacts {
    SavedStateFacts {
        engine: "gvisor".to_owned(),
        build: "release-20240729.0".to_owned(),
        cpu: "avx2 avx512f".to_owned(),
        layer: None,
        image: "5".repeat(64).parse().unwrap(),
        sandbox: SandboxId::from_random([1; 20]),
        generation: 7,
        parent: Some(id(200)),
        resources: Resources::default(),
        taken: Timestamp::from_millis(1_795_000_000_123),
    }
}

pub(super) fn expected() -> Expected {
    let facts = facts();
    Expected { engine: facts.engine, build: facts.build, cpu: facts.cpu }
}

fn names() -> Vec<WrittenFile> {
    files(&["pages.img", "checkpoint.img", "more/state"])
}

/// The files with the content that [`fill`] writes.
fn files(names: &[&str]) -> Vec<WrittenFile> {
    let bytes = |name: &str| match name {
        "pages.img" => 100_000,
        "checkpoint.img" | "other" => 5,
        _ => 0,
    };
    names
        .iter()
        .map(|name| WrittenFile { name: name.into(), bytes: bytes(name), shared_with: None, blake3: None })
        .collect()
}

pub(super) fn open(home: &Path, steps: AnySteps) -> Storage {
    let storage = Storage::open_with(&home.join("data"), &home.join("images"), steps).unwrap();
    // The image of a saved state must exist; its content does not matter here.
    let image = home.join("images").join(facts().image.as_str());
    fs::create_dir_all(image.join("rootfs")).unwrap();
    let about = format!(
        r#"{{"format":1,"digest":"{}","bytes":0,"files":1,"created_ms":1,"config":null,"source":null,"layers":[]}}"#,
        facts().image
    );
    fs::write(image.join("image.json"), about).unwrap();
    storage
}

fn home() -> (TempDir, Storage) {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    (home, storage)
}

fn fill(draft: &Path) {
    fs::write(draft.join("pages.img"), vec![42u8; 100_000]).unwrap();
    fs::write(draft.join("checkpoint.img"), b"state").unwrap();
    fs::create_dir(draft.join("more")).unwrap();
    fs::write(draft.join("more/state"), b"").unwrap();
}

async fn make(storage: &Storage, id: &SavedStateId) -> Result<super::SavedState, StorageError> {
    let draft = storage.begin(id, 100_000).await?;
    fill(draft.directory());
    draft.commit(facts(), &names()).await
}

#[tokio::test]
async fn a_committed_saved_state_is_there_and_sound() {
    let (_home, storage) = home();
    let made = make(&storage, &id(1)).await.unwrap();
    assert_eq!(storage.saved_states().await.unwrap(), [id(1)]);
    assert_eq!(storage.drafts().await.unwrap(), []);
    assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), made);
    assert_eq!(made.facts, facts());
    assert_eq!(made.bytes(), 100_005);
    assert_eq!(made.files[2].blake3, blake3::hash(&[42; 100_000]).to_hex().to_string());
}

#[tokio::test]
async fn a_hash_that_the_writer_knows_is_the_one_that_later_readers_compare() {
    let (_home, storage) = home();
    for (number, known, is_sound) in [(1, [42_u8; 100_000], true), (2, [41; 100_000], false)] {
        let draft = storage.begin(&id(number), 100_000).await.unwrap();
        fill(draft.directory());
        let known = blake3::hash(&known).to_hex().to_string();
        let mut names = names();
        for file in names.iter_mut().filter(|file| file.name.as_os_str() == "pages.img") {
            file.blake3 = Some(known.clone());
        }
        let made = draft.commit(facts(), &names).await.unwrap();
        assert!(made.files.iter().any(|file| file.blake3 == known));
        // Files this short are read each time.
        assert_eq!(storage.verify(&id(number), &expected()).await.is_ok(), is_sound);
    }
}

#[tokio::test]
async fn a_saved_state_that_is_removed_while_it_is_written_never_comes_into_being() {
    let (_home, storage) = home();
    let draft = storage.begin(&id(1), 100_000).await.unwrap();
    fill(draft.directory());
    storage.remove(&id(1)).await.unwrap();
    let refused = draft.commit(facts(), &names()).await.unwrap_err();
    assert!(matches!(refused, StorageError::Missing(_)), "{refused}");
    assert_eq!(storage.saved_states().await.unwrap(), []);
    assert_eq!(storage.drafts().await.unwrap(), []);
    make(&storage, &id(1)).await.unwrap();
}

#[tokio::test]
async fn whatever_step_fails_the_saved_state_is_wholly_there_or_not_there() {
    let steps_of_commit = [
        Step::DraftMade,
        Step::FilesChecked,
        Step::FilesHashed,
        Step::FilesSynced,
        Step::ManifestWritten,
        Step::DraftSynced,
        Step::Renamed,
        Step::ParentSynced,
    ];
    for step in steps_of_commit {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let steps = Armed::new();
            let storage = open(home.path(), steps.clone());
            steps.arm(step, ending);
            make(&storage, &id(1)).await.expect_err("the armed step was not reached");
            if ending == Ending::Fails {
                assert_eq!(storage.saved_states().await.unwrap(), [], "{step:?}: an error means there is none");
                assert_eq!(storage.drafts().await.unwrap(), [], "{step:?}: the draft is cleared");
            }
            drop(storage);
            let storage = open(home.path(), pass());
            if storage.saved_states().await.unwrap().is_empty() {
                let left = storage.drafts().await.unwrap();
                assert_eq!(left.is_empty(), ending == Ending::Fails, "{step:?} {ending:?}");
                for draft in left {
                    storage.remove(&draft).await.unwrap();
                }
                assert_eq!(storage.drafts().await.unwrap(), []);
                make(&storage, &id(1)).await.unwrap();
            } else {
                assert_eq!((step == Step::Renamed || step == Step::ParentSynced, ending), (true, Ending::Dies));
            }
            storage.verify(&id(1), &expected()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_draft_of_a_dead_process_does_not_hinder_the_next_try() {
    let (home, storage) = home();
    fs::create_dir_all(home.path().join("data/saved_states").join(format!("{}.draft/more", id(1)))).unwrap();
    assert_eq!(storage.drafts().await.unwrap(), [id(1)]);
    make(&storage, &id(1)).await.unwrap();
    assert_eq!(storage.drafts().await.unwrap(), []);
}

#[tokio::test]
async fn whatever_step_of_a_removal_fails_removing_again_ends_it() {
    for step in [Step::GoneRenamed, Step::Removed] {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let steps = Armed::new();
            let storage = open(home.path(), steps.clone());
            make(&storage, &id(1)).await.unwrap();
            steps.arm(step, ending);
            storage.remove(&id(1)).await.unwrap_err();
            let storage = if ending == Ending::Dies { open(home.path(), pass()) } else { storage };
            assert_eq!(storage.saved_states().await.unwrap(), []);
            storage.remove(&id(1)).await.unwrap();
            assert_eq!(fs::read_dir(home.path().join("data/saved_states")).unwrap().count(), 0, "{step:?} {ending:?}");
            make(&storage, &id(1)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn removing_twice_is_idempotent_and_leaves_a_live_draft() {
    let (_home, storage) = home();
    make(&storage, &id(1)).await.unwrap();
    storage.remove(&id(1)).await.unwrap();
    storage.remove(&id(1)).await.unwrap();
    assert!(matches!(storage.saved_state(&id(1)).await, Err(StorageError::Missing(_))));
    let draft = storage.begin(&id(1), 0).await.unwrap();
    storage.remove(&id(1)).await.unwrap();
    assert!(draft.directory().is_dir());
}

#[tokio::test]
async fn a_dropped_or_abandoned_draft_leaves_nothing() {
    let (home, storage) = home();
    let draft = storage.begin(&id(1), 10).await.unwrap();
    fill(draft.directory());
    assert!(matches!(storage.begin(&id(1), 10).await, Err(StorageError::Exists(_))));
    drop(draft);
    cleared(&home).await;
    // The id becomes free shortly after the files are removed.
    let again = loop {
        match storage.begin(&id(1), 10).await {
            Ok(draft) => break draft,
            Err(StorageError::Exists(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    again.abandon().await.unwrap();
    assert_eq!(fs::read_dir(home.path().join("data/saved_states")).unwrap().count(), 0);
    make(&storage, &id(1)).await.unwrap();
    assert!(matches!(storage.begin(&id(1), 10).await, Err(StorageError::Exists(_))));
}

/// A draft that is dropped on a thread of the runtime is removed by another thread.
async fn cleared(home: &tempfile::TempDir) {
    let saved_states = home.path().join("data/saved_states");
    while fs::read_dir(&saved_states).unwrap().count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn room_is_promised_once() {
    let (_home, storage) = home();
    let whole = match storage.begin(&id(1), u64::MAX).await {
        Err(StorageError::NoRoom { need_bytes: u64::MAX, free_bytes, .. }) => free_bytes,
        other => panic!("{:?}", other.map(|_| ())),
    };
    // A draft of two thirds fits once; other programs on the host may use a little meanwhile.
    let two_thirds = whole / 3 * 2;
    let first = storage.begin(&id(1), two_thirds).await.unwrap();
    let refused = storage.begin(&id(2), two_thirds).await.map(|_| ()).unwrap_err();
    assert!(refused.is_no_room(), "{refused}");
    first.abandon().await.unwrap();
    storage.begin(&id(2), two_thirds).await.unwrap();
}

#[tokio::test]
async fn what_the_engine_did_not_write_or_not_list_is_refused() {
    let (_home, storage) = home();
    let rows: [(&[&str], &str); 7] = [
        (&["pages.img", "checkpoint.img"], "more/state is not listed by the engine"),
        (&["pages.img", "checkpoint.img", "more/state", "none"], "none is missing"),
        (&["pages.img", "pages.img", "checkpoint.img", "more/state"], "pages.img is listed twice"),
        (&["../images"], "../images is not the name of a file in it"),
        (&["/etc/passwd"], "/etc/passwd is not the name of a file in it"),
        (&["manifest.json"], "manifest.json is not the name of a file in it"),
        (&["more"], "more is not a regular file"),
    ];
    for (names, expected) in rows {
        let draft = storage.begin(&id(1), 0).await.unwrap();
        fill(draft.directory());
        let error = draft.commit(facts(), &files(names)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(storage.saved_states().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_file_of_another_length_than_was_written_makes_no_saved_state() {
    let (_home, storage) = home();
    for (number, written) in [(1, 99_999), (2, 100_001), (3, 0)] {
        let draft = storage.begin(&id(number), 0).await.unwrap();
        fill(draft.directory());
        let mut files = names();
        files[0].bytes = written;
        let error = draft.commit(facts(), &files).await.unwrap_err();
        assert!(matches!(error, StorageError::Short { found: 100_000, .. }), "{error}");
        assert_eq!(storage.saved_states().await.unwrap(), []);
    }
    let draft = storage.begin(&id(4), 0).await.unwrap();
    let memory = draft.make_memory().await.unwrap();
    fill(&memory);
    draft.check_memory(&names()).await.unwrap();
    fs::write(memory.join("checkpoint.img"), b"stat").unwrap();
    let error = draft.check_memory(&names()).await.unwrap_err();
    assert!(matches!(error, StorageError::Short { written: 5, found: 4, .. }), "{error}");
}

#[tokio::test]
async fn no_checked_copy_is_made_of_what_is_damaged() {
    let (_home, storage) = home();
    let source = make(&storage, &id(1)).await.unwrap();
    storage.copy_checked(&id(1), &id(2)).await.unwrap();
    let mut pages = fs::read(source.directory.join("pages.img")).unwrap();
    pages[50_000] ^= 1;
    fs::write(source.directory.join("pages.img"), pages).unwrap();
    let refused = storage.copy_checked(&id(1), &id(3)).await.unwrap_err();
    assert!(
        matches!(&refused, StorageError::Damaged { saved_state, file, .. } if *saved_state == id(1) && file.ends_with("pages.img")),
        "{refused}"
    );
    assert_eq!(storage.saved_states().await.unwrap(), [id(1), id(2)]);
    assert_eq!(storage.drafts().await.unwrap(), []);
}

#[tokio::test]
async fn verify_names_the_file_that_is_damaged() {
    type Damage = fn(&Path);
    let rows: [(&str, Damage, &str); 7] = [
        ("flipped", |file| change(file, |content| content[70_000] ^= 1), "has other content"),
        ("cut", |file| change(file, |content| content.truncate(99_999)), "has 99999 bytes instead of 100000"),
        ("emptied", |file| fs::write(file, b"").unwrap(), "has 0 bytes"),
        ("grown", |file| change(file, |content| content.push(0)), "has 100001 bytes"),
        ("removed", |file| fs::remove_file(file).unwrap(), "is missing"),
        (
            "a directory",
            |file| {
                fs::remove_file(file).unwrap();
                fs::create_dir(file).unwrap();
            },
            "is not a regular file",
        ),
        (
            "a link",
            |file| {
                fs::rename(file, file.with_extension("moved")).unwrap();
                std::os::unix::fs::symlink(file.with_extension("moved"), file).unwrap();
            },
            "is not a regular file",
        ),
    ];
    for (name, damage, expected) in rows {
        let (_home, storage) = home();
        let made = make(&storage, &id(1)).await.unwrap();
        damage(&made.directory.join("pages.img"));
        match storage.verify(&id(1), &self::expected()).await {
            Err(StorageError::Damaged { file, what, .. }) => {
                assert_eq!(file, Path::new("pages.img"), "{name}");
                assert!(what.contains(expected), "{name}: {what}");
            }
            other => panic!("{name}: {other:?}"),
        }
        storage.remove(&id(1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_failed_read_is_repeated_and_says_nothing_about_the_content() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), std::sync::Arc::new(InPlace));
    let made = make(&storage, &id(1)).await.unwrap();
    reread::fail(1);
    assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), made);
    reread::fail(2);
    let unread = storage.verify(&id(1), &expected()).await.unwrap_err();
    assert!(unread.is_unread(), "{unread:?}");
    assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), made);
    let all = storage.stored().await.unwrap();
    let stored = all.iter().find(|one| **one == crate::Stored::SavedState(id(1))).unwrap();
    reread::fail(2);
    let checked = storage.check_stored(stored, None).await.unwrap().unwrap();
    assert!(checked.damaged[0].what.contains("cannot be read"), "{checked:?}");
    assert_eq!(reread::fail(0), 0, "no fault is left");
}

#[tokio::test]
async fn verify_notices_every_changed_byte_of_the_manifest_that_means_something() {
    let (_home, storage) = home();
    let made = make(&storage, &id(1)).await.unwrap();
    let path = made.directory.join("manifest.json");
    let sound = fs::read(&path).unwrap();
    for at in 0..sound.len() {
        if sound[at].is_ascii_whitespace() {
            continue;
        }
        let mut changed = sound.clone();
        changed[at] ^= 4;
        fs::write(&path, changed).unwrap();
        let result = storage.verify(&id(1), &expected()).await;
        assert!(
            matches!(&result, Err(StorageError::Damaged { file, .. }) if file == Path::new("manifest.json"))
                || matches!(&result, Err(StorageError::Format { .. })),
            "byte {at}: {result:?}"
        );
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(storage.saved_state(&id(1)).await, Err(StorageError::Damaged { .. })));
}

fn change(file: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut content = fs::read(file).unwrap();
    change(&mut content);
    fs::write(file, content).unwrap();
}

#[tokio::test]
async fn verify_names_what_this_host_lacks() {
    let (home, storage) = home();
    make(&storage, &id(1)).await.unwrap();
    let rows = [
        ("engine", Expected { engine: "fake".to_owned(), ..expected() }),
        ("build", Expected { build: "newer".to_owned(), ..expected() }),
        ("cpu", Expected { cpu: "sse2".to_owned(), ..expected() }),
    ];
    for (expected, host) in rows {
        match storage.verify(&id(1), &host).await {
            Err(StorageError::Incompatible { what, .. }) => assert_eq!(what, expected),
            other => panic!("{other:?}"),
        }
    }
    fs::remove_dir_all(home.path().join("images").join(facts().image.as_str())).unwrap();
    assert!(matches!(storage.verify(&id(1), &expected()).await, Err(StorageError::MissingImage { .. })));
}

#[tokio::test]
async fn a_copy_outlives_its_source_and_shares_its_files() {
    let (_home, storage) = home();
    let source = make(&storage, &id(1)).await.unwrap();
    let copied = storage.copy(&id(1), &id(2)).await.unwrap();
    let copy = &copied.saved_state;
    assert_eq!(copy.files, source.files);
    let inode = |saved_state: &super::SavedState| fs::metadata(saved_state.directory.join("pages.img")).unwrap().ino();
    // A file system that can share blocks gives the copy files of its own.
    assert_eq!(inode(&source) == inode(copy), copied.shares_data);
    assert_eq!(storage.copy(&id(1), &id(2)).await.unwrap(), copied, "again changes nothing");
    assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), source);
    storage.remove(&id(1)).await.unwrap();
    storage.verify(&id(2), &expected()).await.unwrap();
    assert!(matches!(storage.copy(&id(1), &id(3)).await, Err(StorageError::Missing(_))));
    let draft = storage.begin(&id(4), 0).await.unwrap();
    fs::write(draft.directory().join("other"), b"other").unwrap();
    draft.commit(facts(), &files(&["other"])).await.unwrap();
    assert!(matches!(storage.copy(&id(2), &id(4)).await, Err(StorageError::Exists(_))));
}

#[tokio::test]
async fn whatever_step_of_a_copy_fails_the_source_is_sound_and_copying_again_works() {
    for step in [Step::Linked, Step::ManifestWritten, Step::DraftSynced, Step::Renamed, Step::ParentSynced] {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let steps = Armed::new();
            let storage = open(home.path(), steps.clone());
            make(&storage, &id(1)).await.unwrap();
            steps.arm(step, ending);
            storage.copy(&id(1), &id(2)).await.unwrap_err();
            let storage = if ending == Ending::Dies { open(home.path(), pass()) } else { storage };
            storage.copy(&id(1), &id(2)).await.unwrap();
            storage.verify(&id(1), &expected()).await.unwrap();
            storage.verify(&id(2), &expected()).await.unwrap();
            assert_eq!(storage.drafts().await.unwrap(), []);
        }
    }
}

#[tokio::test]
async fn an_image_below_a_saved_state_is_not_removed() {
    let (_home, storage) = home();
    make(&storage, &id(1)).await.unwrap();
    match storage.remove_image(&facts().image, &["sandbox web".to_owned()]).await {
        Err(StorageError::InUse { held_by, .. }) => {
            assert_eq!(held_by, ["sandbox web".to_owned(), format!("saved state {}", id(1))]);
        }
        other => panic!("{other:?}"),
    }
    storage.remove(&id(1)).await.unwrap();
    storage.remove_image(&facts().image, &[]).await.unwrap();
    assert_eq!(storage.images().await.unwrap(), []);
}

/// Compares a text with its golden file; `DORM_UPDATE=1` writes that if it is missing.
pub(super) fn is_golden(text: &str, name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/saved_states/tests").join(name);
    if std::env::var_os("DORM_UPDATE").is_some() && !path.exists() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap(), "{name}");
}

/// Manifests of format 1 must load for ever: neither this file nor its meaning may change.
#[tokio::test]
async fn the_first_format_loads_and_is_still_written_the_same() {
    let (home, storage) = home();
    let made = make(&storage, &id(1)).await.unwrap();
    let written = fs::read_to_string(made.directory.join("manifest.json")).unwrap();
    is_golden(&written, "manifest-v1.json");
    assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), made);
    let manifest = home.path().join("data/saved_states").join(id(1).as_str()).join("manifest.json");
    let whole: serde_json::Value = serde_json::from_str(&written).unwrap();
    for field in whole["body"].as_object().unwrap().keys() {
        let mut less = whole.clone();
        less["body"].as_object_mut().unwrap().remove(field);
        fs::write(&manifest, less.to_string()).unwrap();
        assert!(matches!(storage.saved_state(&id(1)).await, Err(StorageError::Damaged { .. })), "without {field}");
    }
    fs::write(&manifest, written.replacen("\"format\": 1", "\"format\": 2", 1)).unwrap();
    assert!(matches!(storage.saved_state(&id(1)).await, Err(StorageError::Format { found: 2, known: 1, .. })));
}

/// Records on which threads it is asked whether the process lives.
#[derive(Debug, Default)]
struct Threads(std::sync::Mutex<Vec<std::thread::ThreadId>>);

impl dorm_steps::Steps for Threads {
    fn reach(&self, _: &'static str) -> Result<(), dorm_steps::Stopped> {
        Ok(())
    }

    fn alive(&self) -> bool {
        self.0.lock().unwrap().push(std::thread::current().id());
        true
    }
}

#[tokio::test]
async fn a_draft_whose_writer_was_cut_off_is_removed_without_holding_up_other_tasks() {
    let home = tempfile::tempdir().unwrap();
    let threads = std::sync::Arc::new(Threads::default());
    let storage = open(home.path(), threads.clone());
    let draft = storage.begin(&id(1), 100_000).await.unwrap();
    fill(draft.directory());
    let directory = draft.directory().to_owned();
    threads.0.lock().unwrap().clear();
    drop(draft);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while directory.exists() || threads.0.lock().unwrap().is_empty() {
        assert!(std::time::Instant::now() < end, "the draft stays");
        tokio::task::yield_now().await;
    }
    let own = std::thread::current().id();
    assert!(!threads.0.lock().unwrap().contains(&own), "the thread that runs the tasks has removed it");
    drop(storage);
}
