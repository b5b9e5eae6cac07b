//! Builds of `runsc` side by side: an upgrade loses no memory.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::place::{Counter, Place};

/// The `runsc` of the distribution.
fn stock() -> PathBuf {
    std::env::var_os("DORM_TEST_STOCK_RUNSC").map_or_else(|| PathBuf::from("/usr/bin/runsc"), PathBuf::from)
}

/// A copy of `runsc` that counts as another build: bytes after the end of a program are not
/// executed.
fn build(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::copy(stock(), &path).unwrap();
    std::fs::File::options().append(true).open(&path).unwrap().write_all(name.as_bytes()).unwrap();
    path
}

/// Like [`build`], of a release that nobody knows. It has the same length, as its place in the
/// program requires.
fn unknown(directory: &Path, name: &str) -> PathBuf {
    let path = build(directory, name);
    let mut program = std::fs::read(&path).unwrap();
    let (known, unknown) = (b"20240729.0", b"20240730.0");
    let places: Vec<_> = program.windows(known.len()).enumerate().filter(|(_, at)| at == known).collect();
    let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "{} is of another release", stock().display());
    for place in places {
        program[place..place + known.len()].copy_from_slice(unknown);
    }
    std::fs::write(&path, program).unwrap();
    path
}

/// Our own build if there is one, or else a copy of the stock build.
fn other(directory: &Path) -> PathBuf {
    match std::env::var_os("DORM_TEST_RUNSC").map(PathBuf::from) {
        Some(ours) if ours != stock() => ours,
        Some(_) | None => build(directory, "copy"),
    }
}

#[tokio::test]
async fn builds_of_one_release_resume_what_the_other_has_saved_both_ways() {
    let tools = tempfile::tempdir_in("/var/tmp").unwrap();
    let builds = [stock(), other(tools.path()), stock()];
    let mut place = Place::with(&["--runsc", builds[0].to_str().unwrap()]);
    let mut counter = Counter::create(place.daemon(), json!({ "name": "asleep", "image": "base" })).await;
    let mut seen = Vec::new();
    for build in &builds[1..] {
        place.daemon().act(&counter.id, "suspend").await.unwrap();
        place.daemon().act(&counter.id, "evict").await.unwrap();
        let engine = place.daemon().get("/info").await.unwrap()["engine"].clone();
        assert_eq!(engine["format"], "20240729.0");
        seen.push(engine["build"].clone());
        assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
        // The build that wrote the memory is not on the host any more.
        place.daemon_mut().start_again_with(&["--runsc", build.to_str().unwrap()]).unwrap();
        place.daemon().act(&counter.id, "resume").await.unwrap();
        counter.is_whole(place.daemon()).await;
    }
    assert_ne!(seen[0], seen[1]);
    place.end(&[]).await;
}

#[tokio::test]
async fn what_an_older_runsc_of_an_unknown_format_has_saved_is_resumed_by_it_and_new_sandboxes_get_the_newest() {
    let tools = tempfile::tempdir_in("/var/tmp").unwrap();
    let (old, new) = (unknown(tools.path(), "old"), unknown(tools.path(), "new"));
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
    let (old, new) = (unknown(tools.path(), "old"), unknown(tools.path(), "new"));
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
    place.end(&["format of this build's memory images"]).await;
}
