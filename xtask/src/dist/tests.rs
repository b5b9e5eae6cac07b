//! The packages of an invented build: their files, and that the same files give the same bytes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;

use super::contents::{self, Built, BuiltEngine};
use super::{deb, tarball};
use crate::setup;

const MTIME: u64 = 1_700_000_000;

fn built() -> Built {
    Built {
        dorm: b"\x7fELF GLIBC_2.2.5 GLIBC_2.36 GLIBC_2.4 GLIBC_PRIVATE".to_vec(),
        bash: b"bash".to_vec(),
        zsh: b"zsh".to_vec(),
        fish: b"fish".to_vec(),
        pages: vec![("dorm.1".to_owned(), b".TH".to_vec()), ("dorm-sbx.1".to_owned(), b".TH".to_vec())],
        engine: Some(BuiltEngine { program: b"\x7fELF".to_vec(), licences: b"Apache".to_vec() }),
    }
}

/// The mode and content of each file of a compressed archive.
fn unpack(archive: &[u8]) -> BTreeMap<String, (u32, String)> {
    let mut files = BTreeMap::new();
    let mut names = Vec::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, MTIME), "{name}");
        let mode = header.mode().unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        names.push(name.clone());
        files.insert(name, (mode, String::from_utf8_lossy(&bytes).into_owned()));
    }
    assert!(names.is_sorted(), "{names:?}");
    files
}

/// The members of a Debian package.
fn members(mut package: &[u8]) -> Vec<(String, &[u8])> {
    let mut members = Vec::new();
    package = package.strip_prefix(b"!<arch>\n").unwrap();
    while !package.is_empty() {
        let (header, rest) = package.split_at(60);
        let header = std::str::from_utf8(header).unwrap();
        assert!(header.ends_with("`\n"), "{header:?}");
        let size: usize = header[48..58].trim_end().parse().unwrap();
        members.push((header[..16].trim_end().to_owned(), &rest[..size]));
        package = &rest[size + size % 2..];
    }
    members
}

#[test]
fn the_archive_has_program_licence_unit_completions_and_pages_in_one_directory() {
    let root = setup::root().unwrap();
    let pack =
        || tarball::gzip(&tarball::tar(&contents::archive(&root, &built(), "1.2.3").unwrap(), MTIME).unwrap()).unwrap();
    assert_eq!(pack(), pack());
    let files = unpack(&pack());
    let mode = |name: &str| files[&format!("./dormouse-1.2.3-x86_64-linux/{name}")].0;
    assert_eq!((mode("dorm"), mode("dorm-runsc")), (0o755, 0o755));
    for name in
        ["LICENSE", "dorm-runsc.licences", "README.md", "CHANGELOG.md", "dormouse.service", "man/man1/dorm-sbx.1"]
    {
        assert_eq!(mode(name), 0o644, "{name}");
    }
    assert_eq!(mode("images/base/Dockerfile"), 0o644);
    assert_eq!(mode("images/code-interpreter/files/start.sh"), 0o755);
    for name in ["dorm.bash", "_dorm", "dorm.fish"] {
        assert_eq!(mode(&format!("completions/{name}")), 0o644, "{name}");
    }
    let outside = |name: &&String| !name.starts_with("./dormouse-1.2.3-x86_64-linux/") && *name != "./";
    assert_eq!(files.keys().find(outside), None);
}

#[test]
fn the_debian_package_has_the_files_of_a_service() {
    let root = setup::root().unwrap();
    let package = deb::package(&root, &built(), "1.2.3-rc.1", MTIME).unwrap();
    assert_eq!(package, deb::package(&root, &built(), "1.2.3-rc.1", MTIME).unwrap());
    let members = members(&package);
    let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    assert_eq!(members[0].1, b"2.0\n");

    let control = unpack(members[1].1);
    let text = &control["./control"].1;
    for line in [
        "Package: dormouse",
        "Version: 1.2.3~rc.1",
        "Architecture: amd64",
        "Depends: libc6 (>= 2.36), libgcc-s1, nftables, e2fsprogs",
        "Recommends: runsc (>= 0.0~20240729), ca-certificates",
    ] {
        assert!(text.lines().any(|of| of == line), "{line}: {text}");
    }
    assert!(!text.contains("\n\n"), "an empty line ends the fields: {text}");
    for script in ["./postinst", "./prerm", "./postrm"] {
        let (mode, text) = &control[script];
        assert_eq!(*mode, 0o755, "{script}");
        assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{script}");
    }

    let data = unpack(members[2].1);
    assert_eq!(data["./usr/bin/dorm"].0, 0o755);
    assert_eq!(data["./usr/libexec/dormouse/dorm-runsc"].0, 0o755);
    for name in [
        "./lib/systemd/system/dormouse-sandboxes.service",
        "./lib/systemd/system/dormouse.service",
        "./usr/share/bash-completion/completions/dorm",
        "./usr/share/zsh/vendor-completions/_dorm",
        "./usr/share/fish/vendor_completions.d/dorm.fish",
        "./usr/share/man/man1/dorm.1.gz",
        "./usr/share/doc/dormouse/copyright",
        "./usr/share/doc/dormouse/dorm-runsc.licences.gz",
        "./usr/share/doc/dormouse/operations.md",
        "./usr/share/dormouse/images/code-interpreter/.dockerignore",
        "./usr/share/dormouse/images/code-interpreter/Dockerfile",
        "./usr/share/doc/dormouse/changelog.gz",
    ] {
        assert_eq!(data[name].0, 0o644, "{name}");
    }
    // dpkg keeps an administrator's changes to files that are listed here.
    for name in control["./conffiles"].1.lines() {
        assert!(data.contains_key(&format!(".{name}")), "{name}");
    }
}

#[test]
fn without_our_build_of_gvisor_the_packages_have_no_trace_of_it() {
    let root = setup::root().unwrap();
    let built = Built { engine: None, ..built() };
    let mut entries = contents::archive(&root, &built, "1.2.3").unwrap();
    entries.extend(contents::installed(&root, &built).unwrap());
    assert!(entries.iter().all(|entry| !entry.path.contains("dorm-runsc")));
}

#[test]
fn the_unit_reads_the_options_that_the_package_installs() {
    let unit = std::fs::read_to_string(setup::root().unwrap().join("packaging/dormouse.service")).unwrap();
    assert!(unit.contains("\nEnvironmentFile=-/etc/default/dormouse\n"));
    assert!(unit.contains("\nExecStart=/usr/bin/dorm "));
    assert!(unit.contains("\nKillMode=process\n"), "prerm stops the daemon and leaves sandboxes running");
}
