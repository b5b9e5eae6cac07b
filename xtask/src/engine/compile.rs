//! Runs Go's compiler of the private root, without modules and without a network.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Place, VERSION, say};
use crate::setup::logged;

const PACKAGE: &str = "gvisor.dev/gvisor/runsc";
const FLAGS: [&str; 2] = ["-trimpath", "-buildvcs=false"];
const LINK: &str = "-s -w -X gvisor.dev/gvisor/runsc/version.version=";

/// Everything that determines the result, apart from the sources.
pub(super) fn inputs() -> impl Iterator<Item = &'static str> {
    [PACKAGE, LINK].into_iter().chain(FLAGS)
}

/// Builds the program `output` from the sources in `root`, as `overlay` changes them.
pub(super) fn go(place: &Place<'_>, root: &Path, overlay: &Path, output: &Path) -> Result<()> {
    let goroot = root.join("usr/lib/go-1.22");
    // The package's links are relative, so they lead into the private root.
    ensure!(goroot.join("src/runtime").is_dir(), "{} has no standard library", goroot.display());
    say("compiling gVisor, which takes a minute or two");
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
    command.arg("-ldflags").arg(format!("{LINK}{VERSION}")).arg("-o").arg(output).arg(PACKAGE);
    logged(&mut command, place.log)
}
