//! The suites of the SDKs and integrations, each against a daemon of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;

/// A directory of the set-up.
fn set_up(variable: &str, default: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse").join(default);
    std::env::var_os(variable).map_or(target, PathBuf::from).canonicalize().unwrap()
}

/// Runs a program in a directory of the repository against a new daemon.
async fn passes(directory: &str, program: &Path, arguments: &[&str]) {
    let place = Place::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory).canonicalize().unwrap();
    let path = std::env::var("PATH").unwrap();
    let programs = program.parent().unwrap().display();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&directory)
        .env("PATH", format!("{programs}:{path}"))
        .env("DORM_SERVER", place.daemon().address())
        .env("DORM_KEY", place.daemon().key());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", directory.display(), said(&output.stdout), said(&output.stderr));
    println!("{}", said(&output.stdout).lines().rev().take(5).collect::<Vec<_>>().join("\n"));
    place.end(&["a webhook was not taken"]).await;
}

#[tokio::test]
async fn the_suite_of_the_python_sdk_passes() {
    let python = set_up("DORM_TEST_SDK_PYTHON", "sdk-python").join("bin/python");
    passes("sdk/python", &python, &["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]).await;
}

#[tokio::test]
async fn the_suite_of_the_typescript_sdk_passes() {
    let npm = set_up("DORM_TEST_NODE", "node/bin").join("npm");
    passes("sdk/typescript", &npm, &["run", "--silent", "check"]).await;
    passes("sdk/typescript", &npm, &["test", "--silent"]).await;
}

#[tokio::test]
async fn the_suite_of_the_tanstack_ai_provider_passes() {
    let npm = set_up("DORM_TEST_NODE", "node/bin").join("npm");
    passes("integrations/tanstack-ai", &npm, &["run", "--silent", "check"]).await;
    passes("integrations/tanstack-ai", &npm, &["test", "--silent"]).await;
}
