//! Checks that bugs planted on purpose are found within the simulation runs that a test run
//! executes anyway. Every build of tests has the feature `planted-bugs`; no shipped program has it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use dorm_sim::{Echo, Simulator, StoreKind};
use dorm_steps::planted::{Planted, plant};

/// As many as a test run executes without a planted bug.
const SIMULATIONS: u64 = 9_700;

fn is_found(fault: Planted) {
    plant(fault);
    let simulator = Simulator::new().unwrap();
    let found = (1..=SIMULATIONS).find_map(|seed| {
        let outcome = simulator.run(seed, StoreKind::Memory, Echo::Off).unwrap();
        outcome.failure.map(|failure| (seed, failure.what))
    });
    plant(Planted::None);
    let Some((seed, what)) = found else { panic!("{fault:?} was not found in {SIMULATIONS} simulation runs") };
    println!("{fault:?} was found after {seed} simulation runs: {what}");
    let outcome = simulator.run(seed, StoreKind::Memory, Echo::Off).unwrap();
    assert_eq!(outcome.failure, None, "seed {seed} fails without the planted fault, too");
}

#[test]
fn planted_acknowledgement_before_the_sync_is_found() {
    is_found(Planted::AcknowledgedBeforeSync);
}

#[test]
fn planted_file_that_is_not_synced_is_found() {
    is_found(Planted::FileNotSynced);
}

#[test]
fn planted_manifest_that_is_not_synced_is_found() {
    is_found(Planted::ManifestNotSynced);
}

#[test]
fn planted_directory_of_a_saved_state_that_is_not_synced_is_found() {
    is_found(Planted::DraftNotSynced);
}

#[test]
fn planted_name_of_a_saved_state_that_is_not_synced_is_found() {
    is_found(Planted::NameNotSynced);
}

#[test]
fn planted_early_release_of_the_image_before_is_found() {
    is_found(Planted::ImageReleasedEarly);
}

#[test]
fn planted_deletion_by_the_wall_clock_is_found() {
    is_found(Planted::DeletionByWallClock);
}

#[test]
fn planted_commit_taken_for_failed_is_found() {
    is_found(Planted::CommitReportedFailed);
}

#[test]
fn planted_missed_undo_is_found() {
    is_found(Planted::MissedUndo);
}

#[test]
fn planted_end_of_a_run_that_could_not_be_saved_is_found() {
    is_found(Planted::RunEndedOnFailedSave);
}
