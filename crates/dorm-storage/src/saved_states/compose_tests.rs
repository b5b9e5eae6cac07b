//! Images composed from saved states: the image shows the same files as the sandbox did.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dorm_engine::FileSink;
use dorm_steps::pass;

use super::tests::{facts, id, open};
use super::tree_tests::{Pieces, entry, random_layer, seen, walk};
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending};
use crate::{Image, ImageConfig, SavedState, SavedStateFacts, Storage, StorageError};

async fn image(home: &Path, storage: &Storage) -> Image {
    let source = home.join("source");
    fs::create_dir_all(source.join("a/y")).unwrap();
    fs::write(source.join("a/x"), "of the image").unwrap();
    fs::write(source.join("b"), "of the image").unwrap();
    fs::create_dir(source.join("d")).unwrap();
    storage.import(&source, None, |_| {}).await.unwrap()
}

/// A stack of saved states, the topmost first.
async fn stack(storage: &Storage, image: &Image, seed: u64, count: u8) -> Vec<SavedState> {
    let (mut random, mut before, mut layers) = (seed, BTreeMap::new(), Vec::new());
    for number in 1..=count {
        let draft = storage.begin(&id(number), 0).await.unwrap();
        let top = (number > 1).then(|| id(number - 1));
        let below = storage.below(&image.digest, top.as_ref()).await.unwrap();
        let mut tree = draft.tree(below).unwrap();
        for (entry, mut content) in random_layer(&mut random, number, &mut before) {
            tree.take(&entry, &mut content).unwrap();
        }
        let facts = SavedStateFacts { layer: top, image: image.digest.clone(), ..facts() };
        layers.insert(0, draft.commit_tree(facts, tree).await.unwrap());
    }
    layers
}

async fn compose(storage: &Storage, image: &Image, top: u8) -> Result<Image, StorageError> {
    let config = ImageConfig { directory: Some("/a".into()), ..ImageConfig::default() };
    storage.compose_image(&image.digest, Some(&id(top)), config, Some("key".into()), |_| {}).await
}

#[tokio::test]
async fn an_image_of_saved_states_looks_as_they_do_on_theirs_and_needs_neither() {
    for seed in 1..=60 {
        let home = tempfile::tempdir().unwrap();
        let storage = open(home.path(), pass());
        let base = image(home.path(), &storage).await;
        let layers = stack(&storage, &base, seed, 4).await;
        let all: Vec<&SavedState> = layers.iter().collect();
        let wanted = seen(&all, &base.rootfs, home.path());
        let made = match compose(&storage, &base, 4).await {
            Ok(made) => made,
            Err(StorageError::Entry { entry, .. }) if entry == "/a" => continue,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        for layer in &layers {
            storage.remove(&layer.id).await.unwrap();
        }
        storage.remove_image(&base.digest, &[]).await.unwrap();
        let implied = format!("a 40755 {} 0", dorm_guest_ids::GuestIds::DEFAULT.base());
        let added = |line: &&String| line.starts_with(&implied);
        let found = walk(&made.rootfs);
        assert_eq!(
            found.iter().filter(|line| !added(line)).collect::<Vec<_>>(),
            wanted.iter().filter(|line| !added(line)).collect::<Vec<_>>(),
            "seed {seed}"
        );
        storage.verify_image(&made.digest).await.unwrap();
        assert_eq!((made.source.build.as_deref(), made.config.directory.as_deref()), (Some("key"), Some("/a")));
    }
}

#[tokio::test]
async fn whatever_step_fails_the_image_is_whole_or_not_there() {
    for step in [Step::Unpacked, Step::Listed, Step::ImageSynced, Step::Published] {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let armed = Armed::new();
            let storage = open(home.path(), armed.clone());
            let base = image(home.path(), &storage).await;
            stack(&storage, &base, 7, 2).await;
            armed.arm(step, ending);
            compose(&storage, &base, 2).await.unwrap_err();
            let storage = if ending == Ending::Dies { open(home.path(), pass()) } else { storage };
            for image in storage.images().await.unwrap().into_iter().filter(|image| image.digest != facts().image) {
                storage.verify_image(&image.digest).await.unwrap();
            }
            let names = fs::read_dir(home.path().join("images")).unwrap();
            let names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
            assert!(!names.iter().any(|name| name.starts_with(".import")), "{step:?} {ending:?}: {names:?}");
            compose(&storage, &base, 2).await.unwrap();
        }
    }
}

/// Changes one byte of a file in place.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_file_that_was_damaged_since_it_was_read_gets_into_no_image() {
    type Damaging = fn(&Image, &SavedState);
    let damages: [(&str, Damaging); 3] = [
        ("a/x", |base, _| flip(&base.rootfs.join("a/x"))),
        ("b", |base, _| fs::remove_file(base.rootfs.join("b")).unwrap()),
        ("root/new", |_, top| flip(&top.root().join("new"))),
    ];
    for (file, damage) in damages {
        let home = tempfile::tempdir().unwrap();
        let storage = open(home.path(), pass());
        let base = image(home.path(), &storage).await;
        let draft = storage.begin(&id(1), 0).await.unwrap();
        let mut tree = draft.tree(storage.below(&base.digest, None).await.unwrap()).unwrap();
        let new = entry(b"new", dorm_engine::EntryKind::File { bytes: 3 });
        tree.take(&new, &mut Pieces::whole(b"new")).unwrap();
        let facts = SavedStateFacts { image: base.digest.clone(), ..facts() };
        let top = draft.commit_tree(facts, tree).await.unwrap();
        // Both are known to be intact.
        storage.sound_image(&base.digest).await.unwrap();
        let made = compose(&storage, &base, 1).await.unwrap();
        storage.remove_image(&made.digest, &[]).await.unwrap();
        damage(&base, &top);
        let before = storage.images().await.unwrap().len();
        let error = compose(&storage, &base, 1).await.unwrap_err();
        match &error {
            StorageError::DamagedImage { image, file: found, .. } => {
                assert_eq!((image, found.strip_prefix("rootfs").unwrap()), (&base.digest, Path::new(file)));
            }
            StorageError::Damaged { saved_state, file: found, .. } => {
                assert_eq!((saved_state, found.as_path()), (&top.id, Path::new(file)));
            }
            other => panic!("{file}: {other}"),
        }
        assert_eq!(storage.images().await.unwrap().len(), before, "{file}");
    }
}

#[tokio::test]
async fn a_file_whose_first_name_a_sandbox_has_removed_is_no_damage() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("one"), "of the image").unwrap();
    for name in ["three", "two"] {
        fs::hard_link(source.join("one"), source.join(name)).unwrap();
    }
    let base = storage.import(&source, None, |_| {}).await.unwrap();
    let draft = storage.begin(&id(1), 0).await.unwrap();
    let mut tree = draft.tree(storage.below(&base.digest, None).await.unwrap()).unwrap();
    let removed = entry(b"one", dorm_engine::EntryKind::Removed);
    tree.take(&removed, &mut dorm_engine::NoContent).unwrap();
    let facts = SavedStateFacts { image: base.digest.clone(), ..facts() };
    draft.commit_tree(facts, tree).await.unwrap();
    let made = compose(&storage, &base, 1).await.unwrap();
    assert!(!made.rootfs.join("one").exists());
    assert_eq!(fs::read_to_string(made.rootfs.join("two")).unwrap(), "of the image");
    storage.verify_image(&made.digest).await.unwrap();
}

#[tokio::test]
async fn nothing_of_who_the_sandbox_was_gets_into_an_image() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let base = image(home.path(), &storage).await;
    let draft = storage.begin(&id(1), 0).await.unwrap();
    let mut tree = draft.tree(storage.below(&base.digest, None).await.unwrap()).unwrap();
    let directory = || dorm_engine::EntryKind::Directory { replaces: false };
    for (path, kind) in [
        ("", directory()),
        ("run", directory()),
        ("run/dormouse", directory()),
        ("run/dormouse/sandbox", dorm_engine::EntryKind::File { bytes: 0 }),
    ] {
        tree.take(&entry(path.as_bytes(), kind), &mut dorm_engine::NoContent).unwrap();
    }
    let facts = SavedStateFacts { image: base.digest.clone(), ..facts() };
    draft.commit_tree(facts, tree).await.unwrap();
    let made = compose(&storage, &base, 1).await.unwrap();
    assert!(!made.rootfs.join("run/dormouse/sandbox").exists());
}

#[tokio::test]
async fn an_image_is_not_composed_into_the_reserve_of_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path(), pass());
    let base = image(home.path(), &storage).await;
    stack(&storage, &base, 7, 2).await;
    let before = storage.images().await.unwrap();
    let full = open(home.path(), pass()).limited(u64::MAX, crate::ImportLimits::default());
    let error = compose(&full, &base, 2).await.unwrap_err();
    assert!(matches!(error, StorageError::Reserve { .. }), "{error}");
    assert_eq!(full.images().await.unwrap(), before);
    let left = fs::read_dir(home.path().join("images")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with(".import")));
}
