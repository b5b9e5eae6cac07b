//! The Debian package: an `ar` archive of a version, the control files and the installed files
//! (deb(5)).

use std::path::Path;

use anyhow::{Context as _, Result};

use super::contents::{self, Built, Entry};
use super::tarball;

const MAINTAINER: &str = "Dormouse maintainers <maintainers@dormouse.invalid>";
/// Without these, `dorm doctor` reports that the daemon cannot work.
const DEPENDS: &str = "libgcc-s1, nftables, e2fsprogs";
/// `runsc` may be installed from another source, and Debian 12 has a new enough one only in its
/// backports. Certificates are needed for registries.
const RECOMMENDS: &str = "runsc (>= 0.0~20240729), ca-certificates";

/// The package.
pub(super) fn package(root: &Path, built: &Built, version: &str, mtime: u64) -> Result<Vec<u8>> {
    let installed = contents::installed(root, built)?;
    let mut entries = vec![
        Entry::file("control", control(version, &built.dorm, &installed)?),
        Entry::file("conffiles", "/etc/default/dormouse\n"),
    ];
    for name in ["postinst", "prerm", "postrm"] {
        entries.push(Entry::program(name, contents::read(&root.join("packaging/debian").join(name))?));
    }
    let mut package = b"!<arch>\n".to_vec();
    member(&mut package, "debian-binary", mtime, b"2.0\n");
    member(&mut package, "control.tar.gz", mtime, &tarball::gzip(&tarball::tar(&entries, mtime)?)?);
    member(&mut package, "data.tar.gz", mtime, &tarball::gzip(&tarball::tar(&installed, mtime)?)?);
    Ok(package)
}

/// A version in Debian's order: `1.0.0-rc.1` is before `1.0.0`.
pub(super) fn version(version: &str) -> String {
    version.replace('-', "~")
}

fn control(of: &str, dorm: &[u8], installed: &[Entry]) -> Result<String> {
    let kib: usize = installed.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum();
    let minor = glibc(dorm).context("the program names no version of glibc: was it linked with another C library?")?;
    Ok(format!(
        "Package: dormouse\n\
         Version: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kib}\n\
         Depends: libc6 (>= 2.{minor}), {DEPENDS}\n\
         Recommends: {RECOMMENDS}\n\
         Description: self-hosted sandboxes for AI agents\n \
         Dormouse runs isolated Linux sandboxes under gVisor, without KVM. A sandbox\n \
         starts in tens of milliseconds, can be suspended with its memory and\n \
         processes, resumes where it was, and can be saved as a snapshot and forked.\n \
         .\n \
         The package does not start the daemon: run 'dorm doctor', then\n \
         'systemctl enable --now dormouse'.\n",
        version(of)
    ))
}

/// The newest minor version of glibc 2 from which the program uses a symbol.
fn glibc(dorm: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let marks = dorm.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let minors = marks.filter_map(|(at, _)| {
        let digits = dorm[at + MARK.len()..].iter().take(3).take_while(|byte| byte.is_ascii_digit());
        digits.map(|digit| u32::from(digit - b'0')).reduce(|number, digit| number * 10 + digit)
    });
    minors.max()
}

/// Appends a file to an `ar` archive.
fn member(archive: &mut Vec<u8>, name: &str, mtime: u64, bytes: &[u8]) {
    let header = format!("{name:<16}{mtime:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(bytes);
    if bytes.len() % 2 == 1 {
        archive.push(b'\n');
    }
}
