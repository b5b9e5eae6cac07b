//! What is left of a secret on the host's disk.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::place::Place;

/// Longer files are disks, which are sparse and formatted before any sandbox has them.
const LONGEST: u64 = 64 << 20;

/// Files below `directory` that have `wanted` in them.
fn mentions(directory: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(mentions(&path, wanted));
        } else if kind.is_file()
            && entry.metadata().unwrap().len() < LONGEST
            && has(&std::fs::read(&path).unwrap(), wanted)
        {
            found.push(path);
        }
    }
    found
}

/// Whether `wanted` is somewhere in `content`.
fn has(content: &[u8], wanted: &[u8]) -> bool {
    let starts = content.iter().enumerate().filter(|(_, byte)| **byte == wanted[0]);
    starts.map(|(at, _)| &content[at..]).any(|rest| rest.starts_with(wanted))
}

#[tokio::test]
async fn the_record_of_a_sandbox_that_has_ended_has_no_secret() {
    let mut place = Place::with(&["--hulls", "0"]);
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "secrets": { "TOKEN": "correct-horse-battery" } });
    let id = daemon.create(asked).await.unwrap();
    let (_, said) = daemon.exec(&id, &["sh", "-c", "echo $TOKEN"]).await.unwrap();
    assert_eq!(said.trim(), "correct-horse-battery");
    let data = daemon.data().to_owned();
    daemon.act(&id, "terminate").await.unwrap();
    assert_eq!(daemon.describe(&id).await.unwrap()["secrets"], json!(["TOKEN"]), "its name says what memory may hold");
    // A stop writes everything into the database itself.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    assert_eq!(mentions(&data, b"correct-horse-battery"), Vec::<PathBuf>::new());
    place.daemon_mut().start_again().unwrap();
    place.end(&[]).await;
}
