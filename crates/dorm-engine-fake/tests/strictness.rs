//! The conformance suite detects engines that break the promises of the port: each flaw here fails
//! the check for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dorm_engine::{
    BoxStream, Capabilities, Engine, EngineError, Expectation, FileSink, FoundRun, LeftOut, Mount, Notice, RunSpec,
    Saved, Usage,
};
use dorm_engine_conformance::{CHECKS, Programs, Subject, run_check};
use dorm_engine_fake::{FakeEngine, FakeHost};
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId};
use tokio::sync::mpsc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    StartsTwice,
    SaveResumes,
    SaveFilesResumes,
    SaveReportsOtherLengths,
    FailedSaveResumes,
    ParkDoesNothing,
    ResumeStartsAnother,
    RestoreBootsAfresh,
    RestoreWritesToTheImage,
    RestoreTakesDamage,
    StopDoesNothing,
    StopIsNoticed,
    DeathIsNotNoticed,
    InventoryForgets,
    SweepTakesAll,
    UnknownRunsAreFine,
    RelieveKillsNobody,
    EgressIsNeverRefused,
    LimitsStay,
}

const FLAWS: &[(Flaw, &str)] = &[
    (Flaw::StartsTwice, "starting_twice_is_refused_and_the_first_run_lives"),
    (Flaw::SaveResumes, "saving_keeps_the_source_paused"),
    (Flaw::SaveResumes, "a_paused_run_can_be_saved_again"),
    (Flaw::SaveFilesResumes, "files_saved_without_memory_are_those_saved_with_it"),
    (Flaw::SaveReportsOtherLengths, "a_save_tells_the_length_of_each_of_its_files"),
    (Flaw::FailedSaveResumes, "a_failed_save_keeps_the_source"),
    (Flaw::ParkDoesNothing, "parking_twice_is_idempotent"),
    (Flaw::ResumeStartsAnother, "resuming_continues_exactly"),
    (Flaw::ResumeStartsAnother, "resuming_after_parking_continues_exactly"),
    (Flaw::RestoreBootsAfresh, "a_restored_run_has_the_same_memory_files_and_processes"),
    (Flaw::RestoreBootsAfresh, "two_restores_of_one_image_diverge"),
    (Flaw::RestoreBootsAfresh, "five_saves_in_a_chain_lose_nothing"),
    (Flaw::RestoreBootsAfresh, "an_open_deleted_file_survives"),
    (Flaw::RestoreWritesToTheImage, "restoring_only_reads_the_image"),
    (Flaw::RestoreTakesDamage, "an_image_with_a_cut_file_is_refused"),
    (Flaw::RestoreTakesDamage, "an_image_without_one_of_its_files_is_refused"),
    (Flaw::StopDoesNothing, "stopping_twice_is_idempotent_and_leaves_nothing"),
    (Flaw::StopDoesNothing, "a_start_dropped_anywhere_leaves_nothing_after_stop"),
    (Flaw::StopDoesNothing, "two_runs_at_once_share_nothing"),
    (Flaw::StopIsNoticed, "a_stopped_run_is_not_noticed"),
    (Flaw::DeathIsNotNoticed, "a_run_killed_from_outside_is_noticed"),
    (Flaw::InventoryForgets, "a_reopened_engine_finds_runs_in_their_conditions"),
    (Flaw::SweepTakesAll, "a_sweep_removes_unknown_runs_only"),
    (Flaw::UnknownRunsAreFine, "unknown_runs_are_named_as_such"),
    (Flaw::EgressIsNeverRefused, "egress_changes_in_any_condition_of_a_run_that_has_a_network"),
    (Flaw::LimitsStay, "limits_change_in_any_condition_of_a_run"),
    (Flaw::RelieveKillsNobody, "too_much_memory_costs_one_process"),
];

struct Flawed {
    engine: Arc<FakeEngine>,
    flaw: Flaw,
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    async fn boot(&self, spec: &RunSpec) -> Result<(), EngineError> {
        self.engine.stop(&spec.run).await?;
        self.engine.start(spec).await
    }
}

#[async_trait]
impl Engine for Flawed {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    fn restores(&self, build: &str) -> bool {
        self.engine.restores(build)
    }

    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError> {
        if self.has(Flaw::StartsTwice) { self.boot(spec).await } else { self.engine.start(spec).await }
    }

    async fn restore(&self, spec: &RunSpec, image: &Path) -> Result<(), EngineError> {
        if self.has(Flaw::RestoreWritesToTheImage) {
            std::fs::write(image.join("used"), "once").unwrap();
        }
        match self.engine.restore(spec, image).await {
            Err(EngineError::Failed { .. }) if self.has(Flaw::RestoreTakesDamage) => self.boot(spec).await,
            Ok(()) if self.has(Flaw::RestoreBootsAfresh) => self.boot(spec).await,
            other => other,
        }
    }

    async fn save(&self, run: &RunId, into: &Path, earlier: &[PathBuf]) -> Result<Saved, EngineError> {
        let mut saved = self.engine.save(run, into, earlier).await;
        if let (Ok(saved), true) = (&mut saved, self.has(Flaw::SaveReportsOtherLengths)) {
            saved.files[0].bytes -= 1;
        }
        let resumes = match saved {
            Ok(_) => Flaw::SaveResumes,
            Err(_) => Flaw::FailedSaveResumes,
        };
        if self.has(resumes) {
            self.engine.resume(run).await?;
        }
        saved
    }

    async fn save_files(&self, run: &RunId, into: &Path) -> Result<Saved, EngineError> {
        let saved = self.engine.save_files(run, into).await;
        if self.has(Flaw::SaveFilesResumes) {
            self.engine.resume(run).await?;
        }
        saved
    }

    async fn read_files(&self, image: &Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError> {
        self.engine.read_files(image, sink).await
    }

    async fn pause(&self, run: &RunId) -> Result<(), EngineError> {
        self.engine.pause(run).await
    }

    async fn park(&self, run: &RunId) -> Result<(), EngineError> {
        if self.has(Flaw::ParkDoesNothing) { Ok(()) } else { self.engine.park(run).await }
    }

    async fn mapped_files(&self, run: &RunId, image: &Path) -> Vec<String> {
        self.engine.mapped_files(run, image).await
    }

    async fn resume(&self, run: &RunId) -> Result<(), EngineError> {
        if self.has(Flaw::ResumeStartsAnother) {
            let (image, rootfs) = image();
            let (layers, resources, egress, mounts) = Default::default();
            return self
                .boot(&RunSpec { run: run.clone(), image, rootfs, layers, resources, egress, mounts, build: None })
                .await;
        }
        self.engine.resume(run).await
    }

    async fn stop(&self, run: &RunId) -> Result<(), EngineError> {
        if self.has(Flaw::StopDoesNothing) {
            return Ok(());
        }
        if self.has(Flaw::StopIsNoticed) {
            self.engine.host().kill(run, "stopped");
        }
        self.engine.stop(run).await
    }

    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError> {
        self.engine.agent(run).await
    }

    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        self.engine.connect(run, port).await
    }

    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        self.engine.mount(run, mounts).await
    }

    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError> {
        match self.has(Flaw::EgressIsNeverRefused) {
            true => Ok(()),
            false => self.engine.set_egress(run, egress).await,
        }
    }

    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError> {
        match self.has(Flaw::LimitsStay) {
            true => Ok(()),
            false => self.engine.set_limits(run, resources).await,
        }
    }

    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError> {
        match self.engine.usage(run).await {
            Err(_) if self.has(Flaw::UnknownRunsAreFine) => Ok(Usage::default()),
            usage => usage,
        }
    }

    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        let victim = if self.has(Flaw::RelieveKillsNobody) { Some(0) } else { victim };
        self.engine.relieve_memory_pressure(run, victim).await
    }

    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        let mut found = self.engine.inventory().await?;
        if self.has(Flaw::InventoryForgets) {
            found.retain(|found| found.condition == RunCondition::Running);
        }
        Ok(found)
    }

    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError> {
        Ok(self.inventory().await?.into_iter().find(|found| found.run == *run).map(|found| found.condition))
    }

    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        self.engine.sweep(if self.has(Flaw::SweepTakesAll) { &[] } else { known }).await
    }

    fn notices(&self) -> mpsc::Receiver<Notice> {
        if self.has(Flaw::DeathIsNotNoticed) { mpsc::channel(1).1 } else { self.engine.notices() }
    }

    async fn prepare(&self, image: &Digest, rootfs: &Path) -> Result<(), EngineError> {
        self.engine.prepare(image, rootfs).await
    }

    async fn deleted_image_bytes(&self) -> u64 {
        self.engine.deleted_image_bytes().await
    }

    fn expect(&self, like: &RunSpec, count: usize) -> Expectation {
        self.engine.expect(like, count)
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}

fn image() -> (Digest, PathBuf) {
    ("0".repeat(64).parse().unwrap(), PathBuf::from("/nowhere"))
}

struct FlawedSubject {
    host: FakeHost,
    engine: Mutex<Arc<Flawed>>,
    flaw: Flaw,
}

#[async_trait]
impl Subject for FlawedSubject {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&*self.engine.lock().unwrap()) as Arc<dyn Engine>
    }

    async fn reopen(&self) {
        *self.engine.lock().unwrap() = Arc::new(Flawed { engine: self.host.open(), flaw: self.flaw });
    }

    fn image(&self) -> (Digest, PathBuf) {
        image()
    }

    fn programs(&self) -> Programs {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        Programs {
            counting: words("counter"),
            ticking: words("ticker"),
            holding_deleted: words("hold-deleted"),
            allocating: words("allocate 1000000000000"),
            serving: words("serve"),
        }
    }

    async fn kill(&self, run: &RunId) {
        self.host.kill(run, "killed by a test");
    }

    async fn left_overs(&self) -> Vec<String> {
        self.host.runs().into_iter().map(|(run, condition)| format!("{run} is {condition:?}")).collect()
    }

    fn lacks(&self, _check: &str) -> Option<String> {
        None
    }

    async fn close(&self) {}
}

fn passes(flaw: Flaw, check: &str) -> bool {
    let subject = || async {
        let host = FakeHost::new();
        let engine = Mutex::new(Arc::new(Flawed { engine: host.open(), flaw }));
        Ok(Arc::new(FlawedSubject { host, engine, flaw }) as Arc<dyn Subject>)
    };
    catch_unwind(AssertUnwindSafe(|| run_check(check, subject))).is_ok()
}

#[test]
fn every_flaw_fails_the_check_that_is_about_it() {
    for (flaw, check) in FLAWS {
        assert!(!passes(*flaw, check), "{flaw:?} passes {check}");
        assert!(passes(Flaw::None, check), "an engine without a flaw fails {check}");
    }
}

#[test]
fn every_check_has_a_name_of_its_own() {
    let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}
