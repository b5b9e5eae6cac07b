//! The examples of the SDK, which are the programs of its README, print what they should.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;

/// The directory with the examples, which are built together with the tests of their package.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples")
}

#[tokio::test]
async fn examples_print_what_they_should() {
    let place = Place::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust/examples");
    let mut ran = 0;
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        if source.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let program = built().join(source.file_stem().unwrap());
        assert!(
            program.exists(),
            "there is no {}: run `cargo build --release -p dorm -p dorm-client --examples`",
            program.display()
        );
        let mut command = Command::new(&program);
        command.env("DORM_SERVER", place.daemon().address()).env("DORM_KEY", place.daemon().key());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let expected = std::fs::read_to_string(source.with_extension("out")).unwrap();
        assert_eq!((printed, output.status.code()), (expected, Some(0)), "{}: {stderr}", source.display());
        ran += 1;
    }
    assert!(ran >= 2, "{ran}");
    place.end().await;
}
