//! Builds the agent as a static binary with a separate run of cargo, so that one `cargo build`
//! builds the whole product.
//!
//! The inner build has its own target directory, since the outer cargo holds the lock of the other
//! one. That directory is beside the results of the outer build, so that checking, linting and
//! building share it and the agent is compiled once.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    // The agent runs on the same host as the daemon that contains it.
    let target = variable("TARGET")?;
    let workspace = here.join("../..");
    for part in ["dorm-agent", "dorm-agent-proto"] {
        for file in ["src", "Cargo.toml"] {
            println!("cargo::rerun-if-changed={}", here.join("..").join(part).join(file).display());
        }
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
    println!("cargo::rerun-if-changed=build.rs");

    // OUT_DIR is <profile>/build/<package>-<hash>/out, and the hash differs between a check and a
    // build.
    let outer = out.ancestors().nth(3).unwrap_or(&out);
    let built = outer.join("dorm-agent-build");
    // Cargo tells a build script only whether the profile derives from release; the name of its
    // directory is that of the profile. A dist build contains an agent of the same profile, and
    // every other build one of the release profile.
    let profile = if outer.file_name().is_some_and(|name| name == "dist") { "dist" } else { "release" };
    let status = Command::new(variable("CARGO")?)
        .args(["build", "--profile", profile, "--locked", "--package", "dorm-agent", "--bins"])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&built)
        .arg("--manifest-path")
        .arg(workspace.join("Cargo.toml"))
        // The wrappers and flags of the outer build (clippy, coverage) are not meant for the agent.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false")
        .status()
        .map_err(|error| format!("cannot run cargo to build the agent: {error}"))?;
    if !status.success() {
        return Err(format!("building the agent failed ({status}): see the messages above").into());
    }
    for name in ["dorm-agent", "dorm-trial"] {
        let binary = built.join(&target).join(profile).join(name);
        fs::copy(&binary, out.join(name)).map_err(|error| format!("cannot copy '{}': {error}", binary.display()))?;
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|error| format!("cargo did not give {name}: {error}").into())
}
