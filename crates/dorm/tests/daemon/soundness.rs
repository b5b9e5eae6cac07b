//! A changed byte of an image on the disk, from the user's point of view.

use std::path::Path;
use std::process::{Command, Output};

use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, Place};

fn dorm(arguments: &[&str], data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dorm")).args(arguments).arg("--data").arg(data).output().unwrap()
}

/// Runs `dorm gc --verify`; returns its exit code, and a row for each item.
fn verify(data: &Path) -> (Option<i32>, Vec<Value>) {
    let output = dorm(&["gc", "--verify", "-o", "json"], data);
    let rows = serde_json::from_slice(&output.stdout);
    (output.status.code(), rows.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

#[tokio::test]
async fn a_damaged_file_of_an_image_is_named_by_everybody_and_mended_by_importing_it_again() {
    let mut place = Place::with_images(&["base"]);
    let data = place.daemon().data().to_owned();
    let source = place.directory().join("source");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/file"), "something").unwrap();
    let tiny = place.daemon().import_image(&source, "tiny").await.unwrap();
    let digest = tiny["digest"].as_str().unwrap();
    let mut sound = Counter::create(place.daemon(), json!({ "name": "sound", "image": "base" })).await;
    let (code, rows) = verify(&data);
    assert_eq!(code, Some(0), "{rows:?}");
    assert!(rows.iter().all(|row| row["verdict"] == "sound"), "{rows:?}");

    std::fs::write(place.directory().join("images").join(digest).join("rootfs/etc/file"), "somethinG").unwrap();
    let (code, rows) = verify(&data);
    assert_eq!(code, Some(1), "{rows:?}");
    let damaged: Vec<_> = rows.iter().filter(|row| row["verdict"] == "damaged").collect();
    let [damaged] = damaged.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&damaged["id"], &damaged["files"][0]["file"]), (&json!(digest), &json!("rootfs/etc/file")));
    let table = String::from_utf8(dorm(&["gc", "--verify"], &data).stdout).unwrap();
    assert!(table.contains("rootfs/etc/file differs from the imported file"), "{table}");
    let asked = Some(json!({ "image": "tiny" }));
    let refused = place.daemon().try_ask(Method::POST, "/sandboxes", asked).await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (500, &json!("damaged")), "{refused:?}");
    assert!(refused.body.to_string().contains("rootfs/etc/file"), "{refused:?}");
    sound.is_whole(place.daemon()).await;

    // The damage is still known after a restart, and to `dorm doctor`, which calls no daemon.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let doctor: Value = serde_json::from_slice(&dorm(&["doctor", "-o", "json"], &data).stdout).unwrap();
    let told = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "damage").unwrap();
    assert!(told["verdict"] == "warn" && told["found"].as_str().unwrap().contains("rootfs/etc/file"), "{told}");
    place.daemon_mut().start_again().unwrap();
    let quarantine = place.daemon().get("/quarantine").await.unwrap();
    assert!(quarantine["files"][0]["reason"].as_str().unwrap().contains("rootfs/etc/file"), "{quarantine}");

    place.daemon().import_image(&source, "tiny").await.unwrap();
    assert_eq!(verify(&data).0, Some(0));
    assert_eq!(place.daemon().get("/quarantine").await.unwrap()["files"], json!([]));
    sound.is_whole(place.daemon()).await;
    place.end(&["is damaged", "repaired a damaged image"]).await;
}
