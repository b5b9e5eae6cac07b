use std::fs;
use std::path::Path;

use super::{home, import};
use crate::error::PoolError;
use crate::images::Owner;
use crate::pool::Pool;
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending};

fn owned(home: &Path, id: &str) -> Pool {
    let pool = Pool::open(&home.join(id), &home.join("images")).unwrap();
    pool.owned_by(Owner { id: id.to_owned(), data: home.join(id) }).unwrap()
}

#[tokio::test]
async fn an_image_that_is_referred_to_is_not_removed_by_whomever() {
    let (home, other) = home();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = import(&other, &source).await.unwrap().digest;
    let pool = owned(home.path(), "own");
    pool.refer_to_image(&image).await.unwrap();
    pool.refer_to_image(&image).await.unwrap();
    assert_eq!(pool.referred_images().await.unwrap(), std::slice::from_ref(&image));
    let refused = pool.remove_image(&image, &[]).await;
    assert!(matches!(refused, Err(PoolError::InUse { .. })), "{refused:?}");
    for pool in [&other, &owned(home.path(), "another")] {
        let refused = pool.remove_image(&image, &[]).await;
        let Err(PoolError::Referred { by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(by.iter().map(|foreign| foreign.id.as_str()).collect::<Vec<_>>(), ["own"]);
    }
    pool.release_image(&image).await.unwrap();
    assert!(!home.path().join("images/references/own").exists(), "nothing stays of one who needs nothing");
    other.remove_image(&image, &[]).await.unwrap();
    let refused = pool.refer_to_image(&image).await;
    assert!(matches!(refused, Err(PoolError::NoImage { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_reference_whose_maker_died_is_there_for_the_next() {
    let (home, other) = home();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = import(&other, &source).await.unwrap().digest;
    let armed = Armed::new();
    let owner = Owner { id: "own".to_owned(), data: home.path().join("data") };
    let pool = Pool::open_with(&home.path().join("data"), &home.path().join("images"), armed.clone()).unwrap();
    let pool = pool.owned_by(owner).unwrap();
    armed.arm(Step::Referred, Ending::Dies);
    pool.refer_to_image(&image).await.unwrap_err();
    assert_eq!(owned(home.path(), "own").referred_images().await.unwrap(), [image]);
}

#[test]
fn an_id_that_leads_elsewhere_is_refused() {
    let (home, _) = home();
    for id in ["", "..", "a/b", "."] {
        let pool = Pool::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        let owner = Owner { id: id.to_owned(), data: home.path().to_owned() };
        assert!(pool.owned_by(owner).is_err(), "{id:?}");
    }
}
