//! Files that a new saved state shares with an earlier one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use dorm_steps::pass;

use super::tests::{expected, facts, id, open};
use super::{SavedState, WrittenFile};
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending};
use crate::{Storage, StorageError};

const PAGES: usize = 100_000;

fn own(name: &str, bytes: u64) -> WrittenFile {
    WrittenFile { name: name.into(), bytes, shared_with: None, blake3: None }
}

fn shared(path: PathBuf) -> WrittenFile {
    WrittenFile { name: "pages_base.img".into(), bytes: PAGES as u64, shared_with: Some(path), blake3: None }
}

async fn first(storage: &Storage) -> SavedState {
    let draft = storage.begin(&id(1), 0).await.unwrap();
    fs::write(draft.directory().join("pages.img"), vec![42; PAGES]).unwrap();
    draft.commit(facts(), &[own("pages.img", PAGES as u64)]).await.unwrap()
}

async fn second(storage: &Storage, with: PathBuf) -> Result<SavedState, StorageError> {
    let draft = storage.begin(&id(2), 0).await.unwrap();
    fs::write(draft.directory().join("pages.img"), "new").unwrap();
    draft.commit(facts(), &[shared(with), own("pages.img", 3)]).await
}

#[tokio::test]
async fn a_shared_file_stays_when_its_first_owner_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let one = first(&storage).await;
    let pages = one.directory.join("pages.img");
    let (inode, hash) = (fs::metadata(&pages).unwrap().ino(), one.files[0].blake3.clone());
    let two = second(&storage, pages).await.unwrap();
    let names: Vec<_> = two.files.iter().map(|file| file.name.to_str().unwrap()).collect();
    assert_eq!(names, ["pages.img", "pages_base.img"]);
    assert_eq!(two.files[1].blake3, hash);
    storage.remove(&id(1)).await.unwrap();
    let base = two.directory.join("pages_base.img");
    let facts = fs::metadata(&base).unwrap();
    assert!(facts.nlink() == 1 && (facts.ino() == inode || storage_clones(&base)));
    assert_eq!(storage.verify(&id(2), &expected()).await.unwrap(), two);
    assert_eq!(fs::read(base).unwrap(), vec![42; PAGES]);
}

/// Where blocks can be shared, a copy has a file of its own.
fn storage_clones(path: &Path) -> bool {
    let (from, to) = (fs::File::open(path).unwrap(), path.with_extension("probe"));
    let to = fs::File::create(to).unwrap();
    rustix::fs::ioctl_ficlone(&to, &from).is_ok()
}

#[tokio::test]
async fn a_damaged_file_is_not_shared() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let one = first(&storage).await;
    let pages = one.directory.join("pages.img");
    let mut content = vec![42; PAGES];
    content[PAGES / 2] = 0;
    fs::remove_file(&pages).unwrap();
    fs::write(&pages, content).unwrap();
    let refused = second(&storage, pages).await.unwrap_err();
    assert!(matches!(&refused, StorageError::Damaged { saved_state, .. } if *saved_state == id(1)), "{refused}");
    assert_eq!(storage.saved_states().await.unwrap(), [id(1)]);
}

#[tokio::test]
async fn only_files_of_complete_saved_states_are_shared() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let one = first(&storage).await;
    let elsewhere = home.path().join("pages.img");
    fs::write(&elsewhere, vec![42; PAGES]).unwrap();
    let outside = home.path().join(id(1).to_string());
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("pages.img"), vec![42; PAGES]).unwrap();
    for wrong in [
        elsewhere,
        outside.join("pages.img"),
        one.directory.join("manifest.json"),
        one.directory.join("none"),
        one.directory.with_file_name(id(9).to_string()).join("pages.img"),
        PathBuf::from("/"),
    ] {
        second(&storage, wrong.clone()).await.expect_err(&wrong.display().to_string());
    }
    second(&storage, one.directory.join("pages.img")).await.unwrap();
}

#[tokio::test]
async fn whatever_step_fails_both_or_the_first_are_whole() {
    for step in [Step::FilesHashed, Step::Linked, Step::ManifestWritten, Step::DraftSynced, Step::Renamed] {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let armed = Armed::new();
            let storage = open(home.path(), armed.clone());
            let one = first(&storage).await;
            armed.arm(step, ending);
            second(&storage, one.directory.join("pages.img")).await.unwrap_err();
            let storage = if ending == Ending::Dies { open(home.path(), pass()) } else { storage };
            assert_eq!(storage.verify(&id(1), &expected()).await.unwrap(), one, "{step:?} {ending:?}");
            match storage.verify(&id(2), &expected()).await {
                Ok(_) | Err(StorageError::Missing(_)) => {}
                Err(error) => panic!("{step:?} {ending:?}: {error}"),
            }
        }
    }
}
