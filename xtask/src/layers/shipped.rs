//! Shipped programs are built without code that only tests use.
//!
//! Features are resolved for each shipped program alone and without the dependencies of tests, as
//! `cargo xtask dist` builds it. A build of the whole workspace unites the features of all crates,
//! the simulator included, and says nothing about the program that users get.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The programs that run at a user's: the daemon, and the agent that it embeds.
const SHIPPED: &[&str] = &["dorm", "dorm-agent"];

/// The features that add code for tests, fuzzers, benchmarks and the simulator, in any package.
const TEST_FEATURES: &[&str] = &["test-util", "fuzzing", PLANTED];

/// The crates that only tests and the simulator use. `dorm-testing` is not among them: `dorm prove`
/// drives daemons with it.
const TEST_CRATES: &[&str] = &["dorm-engine-conformance", "dorm-engine-fake", "dorm-sim", "dorm-skip"];

/// The feature with the faults that the simulator must find. The tests of a shipped program must
/// not enable it either.
const PLANTED: &str = "planted-bugs";

/// Adds a line to `wrong` for each part of a shipped program that is only for tests.
pub(super) fn check(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    for package in SHIPPED {
        let resolved = tree(root, package, &["-e", "normal,build", "--prefix", "none", "-f", "{p}|{f}"])?;
        for part in test_parts(&resolved) {
            wrong.push(format!("{package} is built with {part}: see cargo tree -p {package} -e normal,build,features"));
        }
        if tree(root, package, &["-e", "features"])?.contains(PLANTED) {
            wrong.push(format!("{package} is built with planted faults: see cargo tree -p {package} -e features"));
        }
    }
    Ok(())
}

/// Returns what `cargo tree` prints about one package.
fn tree(root: &Path, package: &str, options: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-p", package])
        .args(options)
        .current_dir(root)
        .output()
        .context("run cargo tree")?;
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !tree.contains(package) {
        bail!("cargo tree -p {package}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(tree)
}

/// The test crates and test features in the lines `NAME VERSION…|FEATURE,FEATURE…` of `resolved`,
/// each once.
fn test_parts(resolved: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for line in resolved.lines() {
        let Some((package, features)) = line.split_once('|') else { continue };
        let name = package.split(' ').next().unwrap_or_default();
        if TEST_CRATES.contains(&name) {
            parts.push(format!("the test crate {name}"));
        }
        let features = features.trim_end_matches(" (*)").split(',');
        let found = features.filter(|feature| TEST_FEATURES.contains(feature));
        parts.extend(found.map(|feature| format!("the feature {feature} of {name}")));
    }
    parts.sort();
    parts.dedup();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_features_of_any_package_are_found_once() {
        let resolved = "dorm v0.1.0 (/w/crates/dorm)|\n\
            dorm-store v0.1.0 (/w/crates/dorm-store)|test-util\n\
            tokio v1.54.1|default,test-util,time (*)\n\
            dorm-store v0.1.0 (/w/crates/dorm-store)|test-util (*)\n\
            dorm-net v0.1.0 (/w/crates/dorm-net)|fuzzing\n\
            dorm-steps v0.1.0 (/w/crates/dorm-steps)|planted-bugs (*)\n";
        assert_eq!(
            test_parts(resolved),
            [
                "the feature fuzzing of dorm-net",
                "the feature planted-bugs of dorm-steps",
                "the feature test-util of dorm-store",
                "the feature test-util of tokio",
            ]
        );
    }

    #[test]
    fn test_crates_are_found_and_names_that_only_contain_one_are_not() {
        let resolved = "dorm-engine-fake v0.1.0 (/w/crates/dorm-engine-fake)|\n\
            dorm-testing v0.1.0 (/w/crates/dorm-testing)|\n\
            dorm-simple v0.1.0|test-utilities,no-fuzzing\n";
        assert_eq!(test_parts(resolved), ["the test crate dorm-engine-fake"]);
    }

    #[test]
    fn the_features_of_a_program_are_those_that_it_has_without_its_tests() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let options = ["--prefix", "none", "-f", "{p}|{f}", "-e"];
        let alone = tree(&root, "dorm", &[&options[..], &["normal,build"]].concat())?;
        assert!(alone.contains("dorm-store v"), "{alone}");
        assert_eq!(test_parts(&alone), [""; 0]);
        let with_tests = tree(&root, "dorm", &[&options[..], &["normal,build,dev"]].concat())?;
        let parts = test_parts(&with_tests);
        assert!(parts.contains(&"the feature test-util of dorm-store".to_owned()), "{parts:?}");
        assert!(parts.contains(&"the test crate dorm-engine-fake".to_owned()), "{parts:?}");
        Ok(())
    }
}
