//! The abilities of this host and its `runsc`, for `dorm doctor` and for early errors instead of
//! late ones.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use dorm_cgroup::{CgroupError, Support};
use dorm_engine::EngineError;
use dorm_memory_image::MemoryFormat;

use crate::error::{NAME, chain};
use crate::go_version::GoVersion;
use crate::release::{format_of, is_ours, released};

/// The facts found. [`Probe::usable`] evaluates them.
#[derive(Debug)]
pub struct Probe {
    /// The program that was probed.
    pub runsc: PathBuf,
    /// Its version and a digest of its binary. Empty if the program cannot be executed.
    pub build: String,
    /// The version of Go that compiled it, if that could be read.
    pub go: Option<GoVersion>,
    /// The name of the format of its memory images, if it is known.
    pub format: Option<&'static str>,
    /// The date of its release, such as `2024-07-29`; `None` if its version contains none.
    pub released: Option<String>,
    /// The error of executing it, if that failed.
    pub failure: Option<io::Error>,
    /// The required features that this build lacks.
    pub missing: Vec<&'static str>,
    /// A digest of the names of the CPU's features, on which a memory image depends.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// Whether `runsc run` of this build would refuse to give a sandbox a network on this kernel.
    /// The engine configures links itself and is not affected.
    pub has_netns_check_fault: bool,
    /// The available control groups.
    pub groups: Result<Support, CgroupError>,
    /// Whether user namespaces can be created.
    pub has_user_namespaces: bool,
}

/// The features of `runsc` that the engine needs and not every version has.
const NEEDED: [&str; 6] = ["-net-disconnect-ok", "-overlay2", "-ignore-cgroups", "-platform", "-network", "-directfs"];

/// Probes `runsc` and the host.
pub fn probe(runsc: &Path) -> Probe {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let (build, go, failure) = match build(runsc) {
        Ok((build, go)) => (build, go, None),
        Err(error) => (String::new(), None, Some(error)),
    };
    let missing = if failure.is_none() { missing(runsc) } else { Vec::new() };
    Probe {
        runsc: runsc.to_owned(),
        released: build.rsplit_once(' ').and_then(|(version, _)| released(version)),
        format: format_of(&build).map(MemoryFormat::name),
        build,
        go,
        failure,
        missing,
        cpu: cpu(),
        has_netns_check_fault: is_at_least(&kernel, (6, 11)),
        kernel,
        groups: Support::probe(),
        has_user_namespaces: user_namespaces() > 0,
    }
}

impl Probe {
    /// Returns whether it is a build with our changes.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.build)
    }

    /// Returns the version of Go that compiled the program, if it is too new for its sources.
    pub fn unfit_go(&self) -> Option<GoVersion> {
        let is_of_2024 = self.released.as_ref().is_some_and(|day| day.starts_with("2024-"));
        self.go.filter(|go| is_of_2024 && *go >= GoVersion::CHANGED)
    }

    /// Says why a program that `go` compiled cannot be used.
    pub fn unfit(&self, go: GoVersion) -> String {
        format!("runsc '{}' was compiled with {go}, under which this release crashes at random", self.build)
    }

    /// Checks whether the engine can work on this host.
    ///
    /// # Errors
    /// [`EngineError::Unusable`], with the first missing requirement and how to meet it.
    pub fn usable(&self) -> Result<(), EngineError> {
        let refuse = |hint: String, source: Option<io::Error>| {
            Err(EngineError::Unusable { engine: NAME, hint, source: source.map(Into::into) })
        };
        if let Some(error) = &self.failure {
            let hint =
                format!("install runsc, or pass its path with --runsc: {} cannot be executed", self.runsc.display());
            return refuse(hint, Some(io::Error::other(error.to_string())));
        }
        if let Some(first) = self.missing.first() {
            let hint =
                format!("use dorm-runsc, or runsc of gVisor release 20240729.0: '{}' has no {first}", self.build);
            return refuse(hint, None);
        }
        if let Some(go) = self.unfit_go() {
            return refuse(format!("use dorm-runsc, or a build by a Go before 1.25: {}", self.unfit(go)), None);
        }
        if let Err(error) = &self.groups {
            let hint = "mount the cgroup file systems of this host".to_owned();
            return refuse(hint, Some(io::Error::other(chain(error))));
        }
        if !self.has_user_namespaces {
            return refuse("allow user namespaces: set user.max_user_namespaces above 0".to_owned(), None);
        }
        if !rustix::process::geteuid().is_root() {
            return refuse("run the daemon as root".to_owned(), None);
        }
        Ok(())
    }
}

fn build(runsc: &Path) -> io::Result<(String, Option<GoVersion>)> {
    let text = output(runsc, &["--version"])?;
    let version = text.lines().next().unwrap_or_default().trim().trim_start_matches("runsc version ").to_owned();
    let program = fs::read(runsc)?;
    let digest = blake3::hash(&program).to_hex();
    Ok((format!("runsc {version} {}", &digest[..16]), GoVersion::of_program(&program)))
}

fn missing(runsc: &Path) -> Vec<&'static str> {
    let text = output(runsc, &["flags"]).unwrap_or_default();
    let offered: BTreeSet<&str> = text.split_whitespace().collect();
    NEEDED.into_iter().filter(|flag| !offered.contains(flag)).collect()
}

fn output(runsc: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(runsc).args(arguments).env_clear().output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(text) } else { Err(io::Error::other(text)) }
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_features = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let line = text.lines().find(is_features).and_then(|line| line.split_once(':')).map_or("", |(_, names)| names);
    let names: BTreeSet<&str> = line.split_whitespace().collect();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes()).update(b" ");
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

fn is_at_least(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= least
}

fn user_namespaces() -> u64 {
    let text = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert!(is_at_least("6.18.44-fc", (6, 11)) && is_at_least("7.0", (6, 11)) && is_at_least("6.11.0", (6, 11)));
        assert!(!is_at_least("6.1.0-44-amd64", (6, 11)) && !is_at_least("", (6, 11)));
    }

    #[test]
    fn a_release_of_2024_compiled_with_a_newer_go_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("runsc");
        let flags = NEEDED.join(" ");
        let text =
            format!("#!/bin/sh\ncase $1 in --version) echo runsc version 0.0~20240729.0;; *) echo {flags};; esac\n");
        let program = |minor| {
            let start = format!("{text}exit\n");
            let mut bytes = start.into_bytes();
            bytes.resize(bytes.len().next_multiple_of(16), b'\n');
            bytes.extend_from_slice(b"\xff Go buildinf:\x08\x02");
            bytes.resize(bytes.len() + 16, 0);
            bytes.extend_from_slice(format!("\x06go1.{minor}").as_bytes());
            bytes
        };
        for (minor, is_refused) in [(22, false), (24, false), (25, true), (26, true)] {
            fs::write(&script, program(minor)).unwrap();
            fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let probe = probe(&script);
            assert_eq!(probe.go, Some(GoVersion { major: 1, minor }));
            let refused = probe.usable().err().map(|error| error.chain());
            let says_so = refused.as_ref().is_some_and(|said| said.contains(&format!("compiled with Go 1.{minor}")));
            assert_eq!(says_so, is_refused, "{refused:?}");
        }
    }

    #[test]
    fn a_missing_runsc_is_refused_by_name() {
        let error = probe(Path::new("/nonexistent/runsc")).usable().expect_err("refused");
        assert!(error.chain().contains("/nonexistent/runsc"), "{}", error.chain());
    }
}
