//! Daemons that share a directory of images: neither removes an image that a sandbox of the other
//! uses.

use std::path::Path;

use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::json;

use crate::place::{Counter, PATIENCE, Place};

#[tokio::test]
async fn an_image_is_not_removed_under_a_sandbox_of_another_daemon_that_is_stopped() {
    let place = Place::with_images(&["base"]);
    let (data, images) = (place.directory().join("other"), place.directory().join("images"));
    let (dorm, log) = (Path::new(env!("CARGO_BIN_EXE_dorm")), place.directory().join("other.log"));
    let mut other = Daemon::start(dorm, &data, &images, &log, &["--warm-containers", "0"]).unwrap();
    let mut counter = Counter::create(&other, json!({ "name": "web", "image": "base" })).await;
    other.act("web", "suspend").await.unwrap();
    other.act("web", "evict").await.unwrap();
    assert_eq!(other.stop().unwrap(), Some(0));
    let remove = async || place.daemon().try_ask(Method::DELETE, "/images/base", None).await;
    let refused = remove().await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("conflict")), "{refused:?}");
    let told = refused.body["detail"].as_str().unwrap();
    assert!(told.contains(data.to_str().unwrap()), "{told}");
    other.start_again().unwrap();
    other.act("web", "resume").await.unwrap();
    counter.is_whole(&other).await;
    other.act("web", "terminate").await.unwrap();
    let removed = until(PATIENCE, "the image goes", async || Ok(remove().await?.status == 204)).await;
    assert!(removed.is_ok(), "{:?}", remove().await);
    other.end().await.unwrap();
    place.end(&[]).await;
}
