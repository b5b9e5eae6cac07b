//! `dorm prove` itself: a short proof succeeds, damage is found, and an interrupted proof leaves
//! nothing behind.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dorm_testing::{left_overs, signal, until};
use serde_json::Value;

use crate::place::{PATIENCE, images};

/// A directory for proofs that guests can pass through.
fn place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::Builder::new().prefix("dorm-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    place
}

fn prove(place: &Path, only: &[&str]) -> Child {
    prove_with(place, only, &[])
}

fn prove_with(place: &Path, only: &[&str], options: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(["prove", "-o", "json", "--image", "base", "--images"]).arg(images()).arg("--place").arg(place);
    command.args(only.iter().flat_map(|name| ["--only", name])).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts a proof of two operations during the second; returns its later output.
fn break_off(proof: &mut Child) -> String {
    let mut said = BufReader::new(proof.stderr.take().unwrap());
    let mut line = String::new();
    // By now the proof has sandboxes.
    while !line.contains("2 of 2") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    signal(proof.id(), rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    rest
}

/// Its success, its report, and its messages.
fn report(proof: Child) -> (bool, Value, String) {
    let output = proof.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output.status.success(), report, said)
}

fn is_clear(place: &Path) {
    // A container of another test that is being made has a copy of every mount for a moment, which
    // holds its loop device.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let gone = runtime.block_on(until(PATIENCE, "nothing is left", async || Ok(left_overs(place).is_empty())));
    assert!(gone.is_ok(), "{:#?}", left_overs(place));
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0);
}

fn row<'a>(report: &'a Value, operation: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| row["operation"] == operation).unwrap_or_else(|| panic!("{operation}: {report}"))
}

#[test]
fn a_short_proof_kills_the_daemon_at_every_step_and_finds_nothing_lost() {
    let place = place();
    let (holds, report, said) = report(prove(place.path(), &["suspend", "delete-snapshot"]));
    assert!(holds && report["holds"] == true, "{report} {said}");
    for operation in ["suspend", "delete snapshot"] {
        let row = row(&report, operation);
        assert!(row["steps"].as_u64().unwrap() >= 5, "{report}");
        assert_eq!(row["tried"], row["steps"], "{report}");
        assert!(row["kills"].as_u64() >= row["steps"].as_u64(), "{report}");
    }
    is_clear(place.path());
}

#[test]
fn a_short_proof_cuts_the_power_at_every_step_and_finds_nothing_lost() {
    let place = place();
    let (holds, report, said) = report(prove_with(place.path(), &["suspend", "set-timeouts"], &["--power"]));
    assert!(holds && report["holds"] == true, "{report} {said}");
    for operation in ["suspend", "set timeouts"] {
        let row = row(&report, operation);
        assert_eq!(row["tried"], row["steps"], "{report}");
        assert!(row["power_cuts"].as_u64() >= row["steps"].as_u64(), "{report}");
        assert_eq!(row["kills"], 0, "{report}");
    }
    assert!(row(&report, "suspend")["steps"].as_u64().unwrap() >= 6, "{report}");
    is_clear(place.path());
}

#[test]
fn a_proof_with_power_cuts_that_is_broken_off_leaves_nothing() {
    let place = place();
    let mut proof = prove_with(place.path(), &["set-timeouts", "delete-snapshot"], &["--power"]);
    let rest = break_off(&mut proof);
    let output = proof.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(1), &Value::Bool(true)), "{report} {rest}");
    assert_eq!(report["remains"], Value::Array(Vec::new()), "{rest}");
    is_clear(place.path());
}

#[test]
fn damaged_images_and_full_disks_are_reported_by_name_and_lose_nothing() {
    let place = place();
    let only = ["resume-image-damaged", "create-snapshot-damaged", "suspend-disk-full"];
    let (holds, report, said) = report(prove(place.path(), &only));
    assert!(holds, "{report} {said}");
    for operation in ["resume, image damaged", "create, snapshot damaged"] {
        // Four kinds of damage to each file: an image has four with its manifest, or six if it
        // leaves out what an earlier image has.
        assert!(matches!(row(&report, operation)["disk_faults"].as_u64(), Some(16 | 24)), "{operation}: {report}");
    }
    is_clear(place.path());
}

#[test]
fn a_proof_that_is_broken_off_leaves_nothing() {
    let place = place();
    let mut proof = prove(place.path(), &["set-timeouts", "delete-snapshot"]);
    let rest = break_off(&mut proof);
    let output = proof.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(1), &Value::Bool(true)), "{report} {rest}");
    assert_eq!(report["remains"], Value::Array(Vec::new()), "{rest}");
    is_clear(place.path());
}

#[test]
fn an_unknown_operation_is_refused_with_those_there_are() {
    let place = place();
    let output = prove(place.path(), &["levitate"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("levitate") && said.contains("resume-evicted"), "{said}");
    is_clear(place.path());
}

#[test]
fn a_few_random_walks_are_all_as_the_model_has_it() {
    let place = place();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(["prove", "--walks", "3", "--seed", "1", "-o", "json", "--image", "base", "--images"]);
    command.arg(images()).arg("--place").arg(place.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (holds, report, said) = report(command.spawn().unwrap());
    assert!(holds && report["holds"] == true, "{report} {said}");
    assert_eq!((&report["walks"], &report["stumbles"]), (&Value::from(3), &Value::Array(Vec::new())), "{report}");
    assert!(report["checks"].as_u64().unwrap() >= 20, "{report}");
    is_clear(place.path());
}
