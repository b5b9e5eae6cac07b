//! Runs Go's compiler of the private root, without modules and without a network.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Place, VERSION, say};
use crate::setup::logged;

const PACKAGE: &str = "gvisor.dev/gvisor/runsc";
/// Prints the seccomp programs.
const GENERATOR: &str = "gvisor.dev/gvisor/runsc/dormfilter/generate";
/// Where they belong, relative to the sources of gVisor.
pub(super) const GENERATED: &str = "runsc/dormfilter/generated.go";
const FLAGS: [&str; 2] = ["-trimpath", "-buildvcs=false"];
const LINK: &str = "-s -w -X gvisor.dev/gvisor/runsc/version.version=";

/// Everything that determines the result, apart from the sources.
pub(super) fn inputs() -> impl Iterator<Item = &'static str> {
    [PACKAGE, GENERATOR, GENERATED, LINK].into_iter().chain(FLAGS)
}

/// Builds the program `output` from the sources in `root`, as `overlay` changes them.
pub(super) fn go(place: &Place<'_>, root: &Path, overlay: &Path, output: &Path) -> Result<()> {
    say("compiling gVisor, which takes a minute or two");
    build(place, root, overlay, (PACKAGE, output))
}

/// Returns the Go file with the seccomp programs that belong to the sources in `root`, as `overlay`
/// changes them.
pub(super) fn programs(place: &Place<'_>, root: &Path, overlay: &Path) -> Result<String> {
    say("generating the seccomp programs");
    let generator = place.work.join("generate");
    build(place, root, overlay, (GENERATOR, &generator))?;
    let output = Command::new(&generator).env_clear().output();
    let output = output.with_context(|| format!("execute {}", generator.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed ({}): {}", generator.display(), output.status, errors.trim_end());
    String::from_utf8(output.stdout).with_context(|| format!("read the output of {}", generator.display()))
}

fn build(place: &Place<'_>, root: &Path, overlay: &Path, (package, output): (&str, &Path)) -> Result<()> {
    let goroot = root.join("usr/lib/go-1.22");
    // The package's links are relative, so they lead into the private root.
    ensure!(goroot.join("src/runtime").is_dir(), "{} has no standard library", goroot.display());
    let mut command = Command::new(goroot.join("bin/go"));
    command.env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &place.work);
    for (name, value) in [
        ("GO111MODULE", "off"),
        ("GOPROXY", "off"),
        ("GOTOOLCHAIN", "local"),
        ("GOENV", "off"),
        ("GOTELEMETRY", "off"),
        ("CGO_ENABLED", "0"),
        ("GOOS", "linux"),
        ("GOARCH", "amd64"),
    ] {
        command.env(name, value);
    }
    command
        .env("GOROOT", &goroot)
        .env("GOPATH", root.join("usr/share/gocode"))
        .env("GOCACHE", place.work.join("cache"));
    command.arg("build").arg("-overlay").arg(overlay).args(FLAGS);
    command.arg("-ldflags").arg(format!("{LINK}{VERSION}")).arg("-o").arg(output).arg(package);
    logged(&mut command, place.log)
}
