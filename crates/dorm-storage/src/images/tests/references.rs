use std::fs;
use std::path::Path;

use super::{home, import};
use crate::error::StorageError;
use crate::images::Owner;
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending};
use crate::storage::Storage;

fn owned(home: &Path, id: &str) -> Storage {
    let storage = Storage::open(&home.join(id), &home.join("images")).unwrap();
    storage.owned_by(Owner { id: id.to_owned(), data: home.join(id) }).unwrap()
}

#[tokio::test]
async fn an_image_that_is_referred_to_is_not_removed_by_whomever() {
    let (home, other) = home();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = import(&other, &source).await.unwrap().digest;
    let storage = owned(home.path(), "own");
    storage.refer_to_image(&image).await.unwrap();
    storage.refer_to_image(&image).await.unwrap();
    assert_eq!(storage.referred_images().await.unwrap(), std::slice::from_ref(&image));
    let refused = storage.remove_image(&image, &[]).await;
    assert!(matches!(refused, Err(StorageError::InUse { .. })), "{refused:?}");
    for storage in [&other, &owned(home.path(), "another")] {
        let refused = storage.remove_image(&image, &[]).await;
        let Err(StorageError::Referred { by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(by.iter().map(|foreign| foreign.id.as_str()).collect::<Vec<_>>(), ["own"]);
    }
    storage.release_image(&image).await.unwrap();
    assert!(!home.path().join("images/references/own").exists(), "nothing stays of one who needs nothing");
    other.remove_image(&image, &[]).await.unwrap();
    let refused = storage.refer_to_image(&image).await;
    assert!(matches!(refused, Err(StorageError::NoImage { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_reference_whose_maker_died_is_there_for_the_next() {
    let (home, other) = home();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = import(&other, &source).await.unwrap().digest;
    let armed = Armed::new();
    let owner = Owner { id: "own".to_owned(), data: home.path().join("data") };
    let storage = Storage::open_with(&home.path().join("data"), &home.path().join("images"), armed.clone()).unwrap();
    let storage = storage.owned_by(owner).unwrap();
    armed.arm(Step::Referred, Ending::Dies);
    storage.refer_to_image(&image).await.unwrap_err();
    assert_eq!(owned(home.path(), "own").referred_images().await.unwrap(), [image]);
}

#[test]
fn an_id_that_leads_elsewhere_is_refused() {
    let (home, _) = home();
    for id in ["", "..", "a/b", "."] {
        let storage = Storage::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        let owner = Owner { id: id.to_owned(), data: home.path().to_owned() };
        assert!(storage.owned_by(owner).is_err(), "{id:?}");
    }
}
