//! A parked run releases its memory and maps it from its image.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use dorm_engine::{Engine, RestoredMemory, RunSpec, Saved};
use dorm_engine_gvisor::GvisorEngine;
use dorm_memory_image::PAGES_MAP;

use crate::base::{Woken, begin, fill, has_bases, is_right, next, save, save_after, woken};
use crate::host::{Place, agent_of, wait_for};

/// Saves and parks a run, and waits until the engine needs the pages of the image no more.
async fn park(engine: &GvisorEngine, spec: &RunSpec, image: &Path, earlier: &Path) -> Saved {
    let saved = save_after(engine, &spec.run, image, &[earlier.to_owned()]).await;
    engine.park(&spec.run).await.unwrap();
    settled(image).await;
    saved
}

/// Waits until this process, in which the engine is, has closed the pages of the image.
async fn settled(image: &Path) {
    let pages = image.join("pages.img");
    wait_for("the end of what follows a park", || async {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        !open.filter_map(|link| fs::read_link(link.path()).ok()).any(|path| path == pages)
    })
    .await;
}

async fn resume(engine: &GvisorEngine, spec: &RunSpec) {
    engine.resume(&spec.run).await.unwrap();
    agent_of(engine, &spec.run).await.unquiesce().await.unwrap();
}

async fn memory(engine: &GvisorEngine, spec: &RunSpec) -> u64 {
    engine.usage(&spec.run).await.unwrap().memory_bytes
}

/// Resumes a run, which has the memory of all these processes, and ends everything.
async fn has_all(engine: Arc<GvisorEngine>, place: &Place, spec: &RunSpec, processes: &[u64]) {
    resume(&engine, spec).await;
    for process in processes {
        assert!(is_right(&engine, &spec.run, *process).await, "{process}");
    }
    engine.stop(&spec.run).await.unwrap();
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}

fn maps(engine: &GvisorEngine) -> bool {
    engine.capabilities().memory == RestoredMemory::Mapped
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_change_since_a_run_was_parked_is_not_written_again() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (spec, mut processes) = begin(&engine, &place).await;
    let mut image = place.image_directory("0");
    let before = memory(&engine, &spec).await;
    park(&engine, &spec, &image, Path::new("/nonexistent")).await;
    let whole = fs::metadata(image.join("pages.img")).unwrap().len();
    let mut last = None;
    for n in 1..=5 {
        if maps(&engine) && n == 1 {
            let parked = memory(&engine, &spec).await;
            assert!(parked < before - (20 << 20), "{parked} of {before} bytes");
        }
        resume(&engine, &spec).await;
        assert!(is_right(&engine, &spec.run, processes.remove(0)).await, "{n}");
        processes.push(fill(&engine, &spec.run).await);
        let later = place.image_directory(&n.to_string());
        last = Some(park(&engine, &spec, &later, &image).await);
        if has_bases(&engine) && n < 3 {
            assert!(later.join(PAGES_MAP).exists(), "{n}");
            let own = fs::metadata(later.join("pages.img")).unwrap().len();
            assert!(own < whole * 2 / 3, "{own} of {whole} bytes");
        }
        // Nothing but the last image is needed.
        fs::remove_dir_all(&image).unwrap();
        image = later;
    }
    let (mut again, saved) = (spec, last.unwrap());
    // The run itself, and others from its image, have the same memory.
    resume(&engine, &again).await;
    assert!(is_right(&engine, &again.run, processes[0]).await);
    engine.stop(&again.run).await.unwrap();
    for build in [0, 1] {
        again = next(&again, &saved);
        let other = if build == 1 { Some(place.try_open_in("stock").await.unwrap()) } else { None };
        let restored = other.as_ref().unwrap_or(&engine);
        restored.restore(&again, &image).await.unwrap();
        for process in &processes {
            assert!(is_right(restored, &again.run, *process).await, "{process}");
        }
        restored.stop(&again.run).await.unwrap();
        if let Some(other) = &other {
            other.close().await;
        }
    }
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_resumed_while_it_releases_memory_loses_nothing() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (spec, mut processes) = begin(&engine, &place).await;
    for _ in 0..20 {
        processes.push(fill(&engine, &spec.run).await);
    }
    let mut image = place.image_directory("0");
    for n in 1..=4 {
        let later = place.image_directory(&n.to_string());
        save_after(&engine, &spec.run, &later, &[image]).await;
        let before = memory(&engine, &spec).await;
        engine.park(&spec.run).await.unwrap();
        if maps(&engine) {
            wait_for("the first memory to be released", || async { memory(&engine, &spec).await < before - (2 << 20) })
                .await;
        }
        resume(&engine, &spec).await;
        for _ in 0..4 {
            assert!(is_right(&engine, &spec.run, processes.remove(0)).await, "{n}");
            processes.push(fill(&engine, &spec.run).await);
        }
        image = later;
    }
    park(&engine, &spec, &place.image_directory("5"), &image).await;
    has_all(engine, &place, &spec, &processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_keeps_its_memory_if_the_image_has_another() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (spec, processes) = begin(&engine, &place).await;
    let image = place.image_directory("0");
    save_after(&engine, &spec.run, &image, &[]).await;
    let before = memory(&engine, &spec).await;
    let pages = fs::File::options().write(true).open(image.join("pages.img")).unwrap();
    let zeros = vec![0; usize::try_from(pages.metadata().unwrap().len()).unwrap()];
    pages.write_all_at(&zeros, 0).unwrap();
    drop(pages);
    engine.park(&spec.run).await.unwrap();
    settled(&image).await;
    let after = memory(&engine, &spec).await;
    assert!(after > before - (4 << 20), "{after} of {before} bytes");
    has_all(engine, &place, &spec, &processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_woken_run_keeps_its_memory_if_the_end_of_the_image_has_another() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let Woken { spec, image, mut processes } = woken(&engine, &place).await;
    for _ in 0..4 {
        assert!(is_right(&engine, &spec.run, processes.remove(0)).await);
        processes.extend([fill(&engine, &spec.run).await, fill(&engine, &spec.run).await]);
    }
    // The next image is complete. It has parts of the memory that are in the image before, and
    // others.
    fs::remove_dir_all(image).unwrap();
    let image = place.image_directory("1");
    save(&engine, &spec.run, &image).await;
    let pages = fs::File::options().write(true).open(image.join("pages.img")).unwrap();
    let half = pages.metadata().unwrap().len() / 2;
    pages.write_all_at(&vec![0; usize::try_from(half).unwrap()], half).unwrap();
    drop(pages);
    assert!(memory(&engine, &spec).await > 32 << 20, "so much is released");
    engine.park(&spec.run).await.unwrap();
    settled(&image).await;
    has_all(engine, &place, &spec, &processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_ended_while_it_is_parked_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (spec, _) = begin(&engine, &place).await;
    let image = place.image_directory("0");
    save_after(&engine, &spec.run, &image, &[]).await;
    engine.park(&spec.run).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    settled(&image).await;
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}
