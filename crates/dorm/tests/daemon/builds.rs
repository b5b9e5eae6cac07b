//! Builds of `runsc` side by side: an upgrade loses no memory.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::place::{Counter, Place};

/// A copy of `runsc` that counts as another build: bytes after the end of a program are not
/// executed.
fn build(directory: &Path, name: &str) -> PathBuf {
    let original = std::env::var_os("DORM_TEST_RUNSC").map_or_else(|| PathBuf::from("/usr/bin/runsc"), PathBuf::from);
    let path = directory.join(name);
    std::fs::copy(original, &path).unwrap();
    std::fs::File::options().append(true).open(&path).unwrap().write_all(name.as_bytes()).unwrap();
    path
}

#[tokio::test]
async fn what_an_older_runsc_has_saved_is_resumed_by_it_and_new_sandboxes_get_the_newest() {
    let tools = tempfile::tempdir_in("/var/tmp").unwrap();
    let (old, new) = (build(tools.path(), "old"), build(tools.path(), "new"));
    let old_alone = ["--warm-containers", "0", "--runsc", old.to_str().unwrap()];
    let new_alone = ["--warm-containers", "0", "--runsc", new.to_str().unwrap()];
    let both = ["--warm-containers", "0", "--runsc", new.to_str().unwrap(), "--runsc-also", old.to_str().unwrap()];
    let mut place = Place::with(&old_alone);
    let asleep = Counter::create(place.daemon(), json!({ "name": "asleep", "image": "base" })).await;
    let mut awake = Counter::create(place.daemon(), json!({ "name": "awake", "image": "base" })).await;
    let mut asleep = asleep;
    for verb in ["suspend", "evict"] {
        place.daemon().act(&asleep.id, verb).await.unwrap();
    }
    let before = place.daemon().get("/info").await.unwrap()["engine"]["build"].clone();
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));

    // Without the older build its memory is refused, and is kept.
    place.daemon_mut().start_again_with(&new_alone).unwrap();
    assert_ne!(place.daemon().get("/info").await.unwrap()["engine"]["build"], before);
    let refused = place.daemon().act(&asleep.id, "resume").await.unwrap_err().to_string();
    assert!(refused.contains("build"), "{refused}");
    // A sandbox that kept running writes memory of the build that runs it.
    awake.is_whole(place.daemon()).await;
    for verb in ["suspend", "evict"] {
        place.daemon().act(&awake.id, verb).await.unwrap();
    }
    let refused = place.daemon().act(&awake.id, "resume").await.unwrap_err().to_string();
    assert!(refused.contains("build"), "{refused}");
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));

    place.daemon_mut().start_again_with(&both).unwrap();
    let engine = place.daemon().get("/info").await.unwrap()["engine"].clone();
    assert_eq!(engine["also"], json!([before]));
    for counter in [&mut asleep, &mut awake] {
        place.daemon().act(&counter.id, "resume").await.unwrap();
        counter.is_whole(place.daemon()).await;
        // After a resume by the older build, its memory is again that of the older build.
        for verb in ["suspend", "evict", "resume"] {
            place.daemon().act(&counter.id, verb).await.unwrap();
        }
        counter.is_whole(place.daemon()).await;
    }
    let mut newest = Counter::create(place.daemon(), json!({ "name": "newest", "image": "base" })).await;
    for verb in ["suspend", "evict"] {
        place.daemon().act(&newest.id, verb).await.unwrap();
    }
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    place.daemon_mut().start_again_with(&new_alone).unwrap();
    place.daemon().act(&newest.id, "resume").await.unwrap();
    newest.is_whole(place.daemon()).await;
    place.end(&["build"]).await;
}

#[tokio::test]
async fn a_runsc_that_is_replaced_while_the_daemon_runs_is_the_same_until_the_next_start() {
    let tools = tempfile::tempdir_in("/var/tmp").unwrap();
    let (old, new) = (build(tools.path(), "old"), build(tools.path(), "new"));
    let kept = tools.path().join("kept");
    std::fs::hard_link(&old, &kept).unwrap();
    let mut place = Place::with(&["--warm-containers", "0", "--runsc", old.to_str().unwrap()]);
    std::fs::rename(&new, &old).unwrap();
    let mut counter = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let process = dorm_testing::sandbox_process(place.daemon().data(), &counter.id).unwrap();
    let file = |path: &Path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(file(&PathBuf::from(format!("/proc/{process}/exe"))), file(&kept), "it runs the build that was opened");
    for verb in ["suspend", "evict"] {
        place.daemon().act(&counter.id, verb).await.unwrap();
    }
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let both = ["--warm-containers", "0", "--runsc", old.to_str().unwrap(), "--runsc-also", kept.to_str().unwrap()];
    place.daemon_mut().start_again_with(&both).unwrap();
    place.daemon().act(&counter.id, "resume").await.unwrap();
    counter.is_whole(place.daemon()).await;
    place.end(&[]).await;
}
