//! Secrets on the host's disk: encrypted while their sandbox lives, deleted afterwards.

use std::path::{Path, PathBuf};

use dorm_testing::Daemon;
use serde_json::json;

use crate::place::{Counter, Place};

/// Longer files are disks, which are sparse and formatted before a sandbox has them.
const LONGEST: u64 = 64 << 20;

/// The files below `directory` that contain `wanted`.
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

/// Whether `content` contains `wanted`.
fn has(content: &[u8], wanted: &[u8]) -> bool {
    let starts = content.iter().enumerate().filter(|(_, byte)| **byte == wanted[0]);
    starts.map(|(at, _)| &content[at..]).any(|rest| rest.starts_with(wanted))
}

#[tokio::test]
async fn the_record_of_a_sandbox_that_has_ended_has_no_secret() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "secrets": { "TOKEN": "correct-horse-battery" } });
    let id = daemon.create(asked).await.unwrap();
    let (_, said) = daemon.exec(&id, &["sh", "-c", "echo $TOKEN"]).await.unwrap();
    assert_eq!(said.trim(), "correct-horse-battery");
    let data = daemon.data().to_owned();
    daemon.act(&id, "terminate").await.unwrap();
    assert_eq!(daemon.describe(&id).await.unwrap()["secrets"], json!(["TOKEN"]), "its name says what memory may hold");
    // A stop writes everything into the database file itself.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    assert_eq!(mentions(&data, b"correct-horse-battery"), Vec::<PathBuf>::new());
    place.daemon_mut().start_again().unwrap();
    place.end(&[]).await;
}

/// The secret of a new process in a sandbox.
async fn told(daemon: &Daemon, id: &str) -> String {
    let (_, said) = daemon.exec(id, &["sh", "-c", "echo $TOKEN"]).await.unwrap();
    said.trim().to_owned()
}

#[tokio::test]
async fn the_secrets_of_living_sandboxes_are_encrypted_on_the_disk() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let daemon = place.daemon();
    let asked = json!({ "name": "web", "image": "base", "secrets": { "TOKEN": "correct-horse-battery" } });
    let id = daemon.create(asked).await.unwrap();
    let asked = json!({ "children": [{ "secrets": { "TOKEN": null } }] });
    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), asked).await.unwrap();
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    for id in [&id, &child] {
        assert_eq!(told(daemon, id).await, "correct-horse-battery");
    }
    let data = daemon.data().to_owned();
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    assert_eq!(mentions(&data, b"correct-horse-battery"), Vec::<PathBuf>::new());
    assert!(mentions(&data, b"sealed:1:").iter().any(|path| path.ends_with("dormouse.db")));
    place.daemon_mut().start_again().unwrap();
    place.daemon().act(&id, "suspend").await.unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    for id in [&id, &child] {
        assert_eq!(told(place.daemon(), id).await, "correct-horse-battery");
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn without_the_key_of_its_secrets_a_sandbox_is_kept_until_the_owner_decides() {
    let mut place = Place::with(&["--warm-containers", "0"]);
    let asked = json!({ "name": "web", "image": "base", "secrets": { "TOKEN": "correct-horse-battery" } });
    let mut counter = Counter::create(place.daemon(), asked).await;
    let id = counter.id.clone();
    place.daemon().act(&id, "suspend").await.unwrap();
    place.daemon_mut().stop().unwrap();
    let key = place.daemon().data().join("secrets-key");
    let outside = tempfile::tempdir().unwrap();
    let elsewhere = outside.path().join("key");
    std::fs::copy(&key, &elsewhere).and_then(|_| std::fs::remove_file(&key)).unwrap();
    let refused = place.daemon_mut().start_again().unwrap_err().to_string();
    assert!(refused.contains("secrets of living sandboxes (1)") && refused.contains("--secrets-key"), "{refused}");
    assert!(!key.exists(), "no new key is made");

    // With another key the sandbox is unchanged and cannot resume.
    std::fs::write(&key, "0".repeat(64)).unwrap();
    place.daemon_mut().start_again().unwrap();
    let refused = place.daemon().act(&id, "resume").await.unwrap_err().to_string();
    assert!(refused.contains("cannot read secret 'TOKEN'") && refused.contains("--secrets-key"), "{refused}");
    assert!(!refused.contains("correct-horse"), "{refused}");
    assert_eq!(place.daemon().describe(&id).await.unwrap()["state"], "suspended");

    // With its own key it resumes.
    let said = elsewhere.to_str().unwrap().to_owned();
    place.daemon_mut().stop().unwrap();
    let mode = |mode| std::fs::set_permissions(&elsewhere, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let readable = place
        .daemon_mut()
        .start_again_with(&["--warm-containers", "0", "--secrets-key", &said])
        .unwrap_err()
        .to_string();
    assert!(readable.contains("other users can read"), "{readable}");
    mode(0o600);
    place.daemon_mut().start_again().unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    counter.is_whole(place.daemon()).await;
    assert_eq!(told(place.daemon(), &id).await, "correct-horse-battery");
    place.daemon().act(&id, "suspend").await.unwrap();

    // If the key is lost permanently, the memory is not.
    place.daemon_mut().stop().unwrap();
    std::fs::remove_file(&elsewhere).unwrap();
    std::fs::remove_file(&key).unwrap();
    place.daemon_mut().start_again_with(&["--warm-containers", "0", "--without-lost-secrets"]).unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    counter.is_whole(place.daemon()).await;
    assert_eq!(told(place.daemon(), &id).await, "");
    place.end(&["a secret is left out", "cannot read secret"]).await;
}
