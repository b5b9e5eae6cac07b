//! Images that leave out what an earlier image has.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_agent_client::{ExitStatus, FirstReader, GuestString, Offsets, Output, ProcessSpec, Stdin};
use dorm_engine::{Engine, RestoredMemory, RunSpec, Saved};
use dorm_engine_conformance::name_shared;
use dorm_engine_gvisor::GvisorEngine;
use dorm_lifecycle::RunId;
use dorm_memory_image::{PAGES_BASE, PAGES_MAP};
use futures_util::Stream as _;

use crate::host::{Place, agent_of, stop_all};

const PROGRAM: &str = "dorm-trial";

/// Starts the trial program, which fills 4 MiB of memory with known words.
pub(crate) async fn fill(engine: &GvisorEngine, run: &RunId) -> u64 {
    let agent = agent_of(engine, run).await;
    let arguments = vec![GuestString::new(format!("/{PROGRAM}")).unwrap()];
    let spec = ProcessSpec { stdin: Stdin::Pipe, first_reader: FirstReader::Expected, ..ProcessSpec::new(arguments) };
    let process = agent.start(&spec).await.unwrap().process;
    let mut output = std::pin::pin!(agent.output(process, Offsets::BEGINNING).await.unwrap());
    let first = std::future::poll_fn(|context| output.as_mut().poll_next(context)).await;
    assert!(matches!(first, Some(Ok(Output::Stdout { .. }))), "{first:?}");
    process
}

/// Has a trial program compare its memory, write to all of it, and compare it again.
pub(crate) async fn is_right(engine: &GvisorEngine, run: &RunId, process: u64) -> bool {
    let agent = agent_of(engine, run).await;
    agent.write_stdin(process, bytes::Bytes::from_static(b"\n")).await.unwrap();
    matches!(agent.wait(process).await.unwrap(), ExitStatus::Code(0))
}

/// Saves a run, and names the files that the image shares.
pub(crate) async fn save(engine: &GvisorEngine, run: &RunId, image: &Path) -> Saved {
    save_after(engine, run, image, &[]).await
}

pub(crate) async fn save_after(engine: &GvisorEngine, run: &RunId, image: &Path, earlier: &[PathBuf]) -> Saved {
    agent_of(engine, run).await.quiesce().await.unwrap();
    let saved = engine.save(run, image, earlier).await.unwrap();
    name_shared(&saved.files, image);
    for file in &saved.files {
        assert_eq!(fs::metadata(image.join(&file.name)).unwrap().len(), file.bytes, "{}", file.name.display());
    }
    saved
}

/// The next run from this image.
pub(crate) fn next(spec: &RunSpec, saved: &Saved) -> RunSpec {
    let run = RunId { generation: spec.run.generation + 1, ..spec.run.clone() };
    RunSpec { run, build: Some(saved.build.clone()), ..spec.clone() }
}

/// Whether this engine writes such images here.
pub(crate) fn has_bases(engine: &GvisorEngine) -> bool {
    engine.capabilities().memory == RestoredMemory::Mapped && !engine.capabilities().shares_blocks
}

/// Begins a run with seven trial programs.
pub(crate) async fn begin(engine: &Arc<GvisorEngine>, place: &Place) -> (RunSpec, Vec<u64>) {
    let program = place.rootfs().join(PROGRAM);
    fs::write(&program, dorm_agent_binary::TRIAL).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let owner = dorm_guest_ids::GuestIds::DEFAULT.base();
    std::os::unix::fs::chown(&program, Some(owner), Some(owner)).unwrap();
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let mut processes = Vec::new();
    for _ in 0..7 {
        processes.push(fill(engine, &spec.run).await);
    }
    (spec, processes)
}

/// A run that was restored from its first image, with its trial programs.
pub(crate) struct Woken {
    pub(crate) spec: RunSpec,
    pub(crate) image: PathBuf,
    pub(crate) processes: Vec<u64>,
}

pub(crate) async fn woken(engine: &Arc<GvisorEngine>, place: &Place) -> Woken {
    let (spec, processes) = begin(engine, place).await;
    let image = place.image_directory("0");
    let saved = save(engine, &spec.run, &image).await;
    engine.stop(&spec.run).await.unwrap();
    let spec = next(&spec, &saved);
    engine.restore(&spec, &image).await.unwrap();
    Woken { spec, image, processes }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_change_since_the_first_image_is_not_written_again() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let (mut spec, mut processes) = begin(&engine, &place).await;
    let image = place.image_directory("0");
    let first = save(&engine, &spec.run, &image).await;
    assert_eq!(first.files.len(), 3);
    let inode = |name: &str, image: &Path| fs::metadata(image.join(name)).unwrap().ino();
    let (base, whole) = (inode("pages.img", &image), fs::metadata(image.join("pages.img")).unwrap().len());
    engine.stop(&spec.run).await.unwrap();
    let (mut image, mut saved) = (image, first);
    for n in 1..=3 {
        spec = next(&spec, &saved);
        engine.restore(&spec, &image).await.unwrap();
        assert!(is_right(&engine, &spec.run, processes.remove(0)).await, "{n}");
        processes.push(fill(&engine, &spec.run).await);
        let later = place.image_directory(&n.to_string());
        saved = save(&engine, &spec.run, &later).await;
        if has_bases(&engine) {
            assert!(saved.files.iter().any(|file| file.name == Path::new(PAGES_MAP)));
            assert_eq!(inode(PAGES_BASE, &later), base, "a base has no base");
            let own = fs::metadata(later.join("pages.img")).unwrap().len();
            assert!(own < whole / 2, "{own} of {whole} bytes");
        } else {
            assert_eq!(saved.files.len(), 3);
        }
        engine.stop(&spec.run).await.unwrap();
        // Nothing but the last image is needed.
        fs::remove_dir_all(&image).unwrap();
        image = later;
    }
    // Another run continues from it beside the first.
    for _ in 0..2 {
        spec = next(&spec, &saved);
        engine.restore(&spec, &image).await.unwrap();
        for process in &processes {
            assert!(is_right(&engine, &spec.run, *process).await, "{process}");
        }
    }
    stop_all(&engine).await;
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_change_since_a_sleep_in_memory_is_not_written_again() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let Woken { spec: again, image, mut processes } = woken(&engine, &place).await;
    let whole = fs::metadata(image.join("pages.img")).unwrap().len();
    // Another file under a name that an image has is none of its pages.
    let wrong = place.image_directory("wrong");
    for name in ["pages.img", PAGES_BASE] {
        fs::write(wrong.join(name), vec![7; usize::try_from(whole).unwrap()]).unwrap();
    }
    let (mut earlier, mut saved) = (image, None);
    for n in 1..=3 {
        assert!(is_right(&engine, &again.run, processes.remove(0)).await, "{n}");
        let later = place.image_directory(&n.to_string());
        let beside = [wrong.clone(), wrong.join("none"), earlier.clone()];
        let written = save_after(&engine, &again.run, &later, &beside).await;
        if has_bases(&engine) {
            assert_eq!(written.files.len(), 5, "{n}");
            let own = fs::metadata(later.join("pages.img")).unwrap().len();
            assert!(own < whole / 2, "{own} of {whole} bytes");
        }
        // Only the last image stays, as while a sandbox is awake.
        fs::remove_dir_all(&earlier).unwrap();
        engine.park(&again.run).await.unwrap();
        engine.resume(&again.run).await.unwrap();
        agent_of(&engine, &again.run).await.unquiesce().await.unwrap();
        (earlier, saved) = (later, Some(written));
    }
    engine.stop(&again.run).await.unwrap();
    let last = next(&again, &saved.unwrap());
    engine.restore(&last, &earlier).await.unwrap();
    for process in &processes {
        assert!(is_right(&engine, &last.run, *process).await, "{process}");
    }
    engine.stop(&last.run).await.unwrap();
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_complete_if_the_one_before_is_gone() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let Woken { spec: again, image, mut processes } = woken(&engine, &place).await;
    assert!(is_right(&engine, &again.run, processes.remove(0)).await);
    fs::remove_dir_all(image).unwrap();
    let image = place.image_directory("1");
    let saved = save(&engine, &again.run, &image).await;
    assert_eq!(saved.files.len(), 3);
    assert!(!image.join(PAGES_MAP).exists());
    engine.stop(&again.run).await.unwrap();
    let last = next(&again, &saved);
    engine.restore(&last, &image).await.unwrap();
    for process in &processes {
        assert!(is_right(&engine, &last.run, *process).await, "{process}");
    }
    engine.stop(&last.run).await.unwrap();
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_knows_no_bases_restores_an_image_with_one() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let Woken { spec: again, mut processes, .. } = woken(&engine, &place).await;
    assert!(is_right(&engine, &again.run, processes.remove(0)).await);
    let image = place.image_directory("1");
    let saved = save(&engine, &again.run, &image).await;
    assert_eq!(image.join(PAGES_BASE).exists(), has_bases(&engine));
    engine.stop(&again.run).await.unwrap();
    let stock = place.try_open_in("stock").await.unwrap();
    assert!(stock.restores(&saved.build));
    let last = next(&again, &saved);
    stock.restore(&last, &image).await.unwrap();
    for process in &processes {
        assert!(is_right(&stock, &last.run, *process).await, "{process}");
    }
    stock.stop(&last.run).await.unwrap();
    stock.close().await;
    drop((engine, stock));
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_base_or_map_is_damaged_is_refused() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    if !has_bases(&engine) {
        return;
    }
    let Woken { spec: again, .. } = woken(&engine, &place).await;
    let image = place.image_directory("1");
    let saved = save(&engine, &again.run, &image).await;
    engine.stop(&again.run).await.unwrap();
    let map = fs::read(image.join(PAGES_MAP)).unwrap();
    let mut shifted = map.clone();
    shifted[24] ^= 0x10;
    let mut longer = map.clone();
    longer.extend_from_slice(&map[map.len() - 24..]);
    for wrong in [&map[..map.len() - 1], &map[..24], &longer, &shifted, &[0; 24]] {
        fs::write(image.join(PAGES_MAP), wrong).unwrap();
        let last = next(&again, &saved);
        engine.restore(&last, &image).await.unwrap_err();
        assert_eq!(engine.inventory().await.unwrap(), []);
    }
    fs::write(image.join(PAGES_MAP), &map).unwrap();
    let base = fs::File::options().write(true).open(image.join(PAGES_BASE)).unwrap();
    base.set_len(base.metadata().unwrap().len() - 4096).unwrap();
    engine.restore(&next(&again, &saved), &image).await.unwrap_err();
    fs::remove_file(image.join(PAGES_BASE)).unwrap();
    engine.restore(&next(&again, &saved), &image).await.unwrap_err();
    drop(engine);
    assert_eq!(place.left(), [""; 0]);
}
