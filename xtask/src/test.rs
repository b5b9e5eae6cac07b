//! `cargo xtask test`: runs every check and every test, in the order that finds a mistake soonest.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build::cargo;
use crate::{check, setup, skips};

/// Runs everything, or only the tests whose names contain `filter`.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let environment = setup::ensure()?;
    setup::ensure_tools(&environment)?;
    let python = setup::ensure_python(&environment)?;
    if filter.is_none() {
        check::all_but_tests(&environment.root, None)?;
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"])
        .args(["--profile", if std::env::var_os("CI").is_some() { "ci" } else { "default" }])
        .args(filter)
        .env("DORM_TEST_IMAGES", &environment.images)
        .env("DORM_TEST_RUNSC", &environment.runsc)
        .env("DORM_TEST_PYTHON", &python)
        .env("DORM_ALLOW_SKIP", skips::allowed(&environment.root)?)
        .current_dir(&environment.root);
    let status = command.status().context("run cargo nextest")?;
    if !status.success() {
        bail!("tests failed");
    }
    if filter.is_none() {
        // Only the simulator and one edge, since nothing that is shipped may ever be built with
        // planted faults.
        eprintln!("test: checking that planted faults are found");
        let planted = ["--features", "planted-bugs", "-E", "test(planted)", "--success-output", "final"];
        for package in ["dorm-sim", "dorm-api"] {
            cargo(&[&["nextest", "run", "--release", "-p", package, "--no-fail-fast"][..], &planted].concat())?;
        }
    }
    Ok(())
}
