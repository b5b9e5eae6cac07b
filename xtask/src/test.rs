//! `cargo xtask test`: runs every check and every test, in the order that finds a mistake soonest.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use crate::build::cargo;
use crate::setup::{Clients, Environment};
use crate::{check, setup, skips};

/// Runs everything, or only the tests whose names contain `filter`.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let (dorm, (environment, clients)) = crate::build::tests_beside(|| {
        let environment = setup::ensure()?;
        setup::ensure_tools(&environment)?;
        let clients = setup::ensure_clients(&environment)?;
        Ok((environment, clients))
    })?;
    setup::ensure_interpreter(&dorm, &environment, &clients)?;
    if filter.is_none() {
        check::all_but_tests(&environment.root, None)?;
    }
    let summaries = Summaries::new(&environment)?;
    let profile = if std::env::var_os("CI").is_some() { "ci" } else { "default" };
    let mut command = nextest(&environment, &clients)?;
    // A filter names tests that the whole may leave out.
    command.args(filter.map(|_| "--ignore-default-filter"));
    command.args(["--profile", profile]).args(filter).env("DORM_TEST_RUNSC", &environment.runsc);
    command.env("DORM_TEST_SUMMARIES", &summaries.directory);
    let passed = pass(command, "tests failed");
    summaries.print()?;
    passed?;
    if filter.is_none() {
        // The test runner does not know examples in documentation.
        cargo(&["test", "--release", "--workspace", "--doc"])?;
    }
    let stock = &environment.stock_runsc;
    if filter.is_none() && environment.runsc != *stock {
        eprintln!("test: the promises of an engine and the lifecycle matrix under the stock runsc");
        let mut command = nextest(&environment, &clients)?;
        command.args(["--ignore-default-filter", "-E", "test(/^conformance::/) | test(/^matrix::/)"]);
        command.env("DORM_TEST_RUNSC", stock).env("DORM_RUNSC", stock);
        pass(command, "tests failed under the stock runsc")?;
    }
    Ok(())
}

/// Returns the test runner for every crate. Daemons choose their engine as `dorm serve` does.
fn nextest(environment: &Environment, clients: &Clients) -> Result<Command> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"])
        .env("DORM_TEST_IMAGES", &environment.images)
        .env("DORM_TEST_STOCK_RUNSC", &environment.stock_runsc)
        .env("DORM_TEST_PYTHON", &clients.python)
        .env("DORM_TEST_SDK_PYTHON", &clients.sdk_python)
        .env("DORM_TEST_E2B_PYTHON", &clients.e2b_pythons[0])
        .env("DORM_TEST_E2B_PYTHON_2_45", &clients.e2b_pythons[1])
        .env("DORM_TEST_NODE", &clients.node)
        .env("DORM_ALLOW_SKIP", skips::allowed(&environment.root)?)
        .current_dir(&environment.root);
    Ok(command)
}

fn pass(mut command: Command, failure: &'static str) -> Result<()> {
    let status = command.status().context("run cargo nextest")?;
    if status.success() { Ok(()) } else { Err(anyhow!(failure)) }
}

/// Reports of the suites of clients, such as numbers of cases: the test runner hides the output of
/// tests that pass.
struct Summaries {
    directory: PathBuf,
}

impl Summaries {
    /// An empty directory for them.
    fn new(environment: &Environment) -> Result<Self> {
        let directory = environment.work.join("summaries");
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
        }
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Prints them in the order of their names.
    fn print(&self) -> Result<()> {
        let read = || format!("read {}", self.directory.display());
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory).with_context(read)? {
            paths.push(entry.with_context(read)?.path());
        }
        paths.sort();
        for path in paths {
            let summary = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            for line in summary.lines() {
                println!("test: {line}");
            }
        }
        Ok(())
    }
}
