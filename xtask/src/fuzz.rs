//! `cargo xtask fuzz`: builds the fuzzers in `fuzz/` with coverage instrumentation, on the stable
//! compiler, and runs each of them for some time.
//!
//! ```text
//! fuzz/seeds/TARGET/      a few inputs written by the project's own code; tests write and parse them
//! target/fuzz/TARGET/     inputs that reach more code, kept between runs
//! fuzz/found/TARGET-…     an input that breaks something
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";
/// More memory than any parser needs, and more seconds than it needs for one input.
const MEMORY_MIB: u32 = 600;
const TIME_MAX: u32 = 20;

/// Runs the fuzzers.
pub(crate) fn run(root: &Path, minutes: u64, only: &[String]) -> Result<()> {
    let package = root.join("fuzz");
    let targets = targets(&package)?;
    if let Some(unknown) = only.iter().find(|name| !targets.contains(name)) {
        bail!("there is no target '{unknown}'; the targets are {}", targets.join(", "));
    }
    let built = root.join("target/fuzz-build");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--target", TRIPLE, "--target-dir"])
        .arg(&built)
        .current_dir(&package)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("build the fuzzers")?;
    if !status.success() {
        bail!("cannot build the fuzzers: {status} (a C++ compiler is needed: `apt-get install g++`)");
    }
    let mut broken = Vec::new();
    for target in targets.iter().filter(|target| only.is_empty() || only.contains(target)) {
        let program = built.join(TRIPLE).join("release").join(target);
        if !one(root, target, &program, minutes)? {
            broken.push(target.as_str());
        }
    }
    match broken.as_slice() {
        [] => Ok(()),
        broken => bail!("found failures of {}: the inputs are in fuzz/found", broken.join(", ")),
    }
}

fn targets(package: &Path) -> Result<Vec<String>> {
    let sources = package.join("src/bin");
    let listed = fs::read_dir(&sources).with_context(|| format!("list {}", sources.display()))?;
    let mut names: Vec<String> = listed
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs one fuzzer. Returns whether it found no failure.
fn one(root: &Path, target: &str, program: &Path, minutes: u64) -> Result<bool> {
    let make = |path: &Path| fs::create_dir_all(path).with_context(|| format!("make {}", path.display()));
    let (corpus, found) = (root.join("target/fuzz").join(target), root.join("fuzz/found"));
    make(&corpus)?;
    make(&found)?;
    // The fuzzer writes thousands of small trees per second: in memory, if possible.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let place = tempfile::Builder::new().prefix("dormouse-fuzz-").tempdir_in(place).context("make a directory")?;
    println!("{target}: {minutes} minutes");
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={}", minutes * 60))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={TIME_MAX}"))
        .arg("-max_len=65536")
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{target}-", found.display()))
        .arg(&corpus)
        .env("DORM_FUZZ", place.path())
        .env("RUST_LOG", "off");
    let seeds = root.join("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(&seeds);
    }
    let dictionary = root.join("fuzz/dictionaries").join(target);
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let status = command.status().with_context(|| format!("run {}", program.display()))?;
    Ok(status.success())
}
