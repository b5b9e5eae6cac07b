//! The trial of our own build before it is used.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dorm_engine::{Engine as _, EngineError, RestoredMemory};
use dorm_engine_gvisor::{TrialOutcome, probe, trial_outcome};

use crate::host::{Place, runsc, stock_runsc};

/// A program that says it is our build, and is not. Later builds save in ways that it does not
/// know.
fn pretender(directory: &Path) -> PathBuf {
    let path = directory.join("pretender");
    let text = format!(
        "#!/bin/sh\nif test \"$1\" = --version; then echo runsc version 0.0~20240729.0+dorm1; else exec {} \"$@\"; fi\n",
        stock_runsc().display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn outcome(place: &Place, runsc: &Path) -> TrialOutcome {
    trial_outcome(&place.path().join("engine"), &probe(runsc))
}

#[tokio::test(flavor = "multi_thread")]
async fn our_build_is_tried_once_leaves_memory_in_its_image_and_the_trial_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    // That of the daemon, under which new directories are closed to guests.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    assert_eq!(outcome(&place, &runsc()), TrialOutcome::Untried);
    for _ in 0..2 {
        let engine = place.open(0).await;
        if probe(&runsc()).is_ours() {
            assert_eq!(engine.capabilities().memory, RestoredMemory::Mapped);
            assert_eq!(outcome(&place, &runsc()), TrialOutcome::Succeeded);
        } else {
            assert!(engine.capabilities().memory.copied_because().is_some());
            assert_eq!(outcome(&place, &runsc()), TrialOutcome::Untried);
        }
        assert!(!place.path().join("engine/try").exists());
        assert_eq!(place.left(), [""; 0]);
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_its_trial_is_passed_over_with_its_reason() {
    let Some(place) = Place::new() else { return };
    let pretender = pretender(place.path());
    let engine = place.try_open_with(vec![pretender.clone(), stock_runsc()]).await.unwrap();
    let capabilities = engine.capabilities();
    assert_eq!(capabilities.build, probe(&stock_runsc()).build);
    let reason = capabilities.memory.copied_because().unwrap_or_default();
    assert!(reason.contains("read instead of being mapped from its image"), "{reason}");
    let TrialOutcome::Failed(noted) = outcome(&place, &pretender) else { panic!("a failure is noted") };
    assert!(reason.contains(&noted), "{noted}: {reason}");
    assert!(!place.path().join("engine/try").exists());
    assert_eq!(place.left(), [""; 0]);
    engine.close().await;
    drop(engine);

    // Alone it is refused: what it would do to an image is not known.
    let refused = place.try_open_with(vec![pretender]).await.err();
    assert!(matches!(refused, Some(EngineError::Unusable { .. })), "{refused:?}");
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_trial_left_is_removed_by_the_next_start() {
    let Some(place) = Place::new() else { return };
    // The second tries nothing.
    for runsc in [runsc(), stock_runsc()] {
        // A trial's engine whose daemon was killed: its run continues.
        let engine = place.try_open_in("engine/try").await.unwrap();
        engine.start(&place.spec()).await.unwrap();
        drop(engine);
        assert!(place.left().iter().any(|left| left.starts_with("process")), "{:?}", place.left());
        let engine = place.try_open_with(vec![runsc.clone()]).await.unwrap();
        assert_eq!(engine.capabilities().memory == RestoredMemory::Mapped, probe(&runsc).is_ours());
        assert!(!place.path().join("engine/try").exists());
        assert_eq!(place.left(), [""; 0]);
        engine.close().await;
    }
}
