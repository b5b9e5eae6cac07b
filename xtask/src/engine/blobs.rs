//! The parts of gVisor that are not written in Go: the vDSO and the signal handler of the platform
//! systrap. Debian's package of the sources has placeholders for them, so they are compiled from
//! the archive of the release, with the flags that its build files name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Place, is_c, made, say};
use crate::setup::{self, logged};

const ARCHIVE: &str = "pool/main/g/golang-gvisor-gvisor/golang-gvisor-gvisor_0.0~20240729.0.orig.tar.gz";
const SHA256: &str = "8677fe60daa0519bb77139c58fec6c9e4ea1ee12f9f673007c6c0e3545ef69d2";

const VDSO_DIRECTORY: &str = "vdso";
const SYSTRAP: &str = "pkg/sentry/platform/systrap/sysmsg";

/// The parts of the signal handler, in the order in which they are linked: the linker script relies
/// on it.
const PARTS: [&str; 4] = ["sigrestorer_amd64.S", "sighandler_amd64.c", "syshandler_amd64.S", "sysmsg_lib.c"];
const CC: &[&str] = &[
    "-fpie",
    "-O2",
    "-fno-builtin",
    "-ffreestanding",
    "-g",
    "-Wa,--noexecstack",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-c",
];
const VDSO: &[&str] = &[
    "-I.",
    "-I..",
    "-O2",
    "-std=c++11",
    "-fPIC",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fuse-ld=bfd",
    "-shared",
    "-nostdlib",
    "-Wl,-soname=linux-vdso.so.1",
    "-Wl,--hash-style=sysv",
    "-Wl,--no-undefined",
    "-Wl,-Bsymbolic",
    "-Wl,-z,max-page-size=4096",
    "-Wl,-z,common-page-size=4096",
    "-Wl,-Tvdso_amd64.lds",
];

/// The results, by their paths below the sources of gVisor.
pub(super) const RESULTS: [&str; 3] = [
    "pkg/sentry/loader/vdsodata/vdso_amd64.so",
    "pkg/sentry/platform/systrap/sysmsg/sighandler.built-in.amd64.bin",
    "pkg/sentry/platform/systrap/sysmsg/sighandler_amd64.go",
];

/// Everything that determines the results.
pub(super) fn inputs<'a>() -> impl Iterator<Item = &'a str> {
    [ARCHIVE, SHA256].into_iter().chain(PARTS).chain(CC.iter().copied()).chain(VDSO.iter().copied())
}

/// Returns the directory of the unpacked archive of the release, after downloading it unless it
/// exists.
pub(super) fn ensure_archive(place: &Place<'_>) -> Result<PathBuf> {
    made(&place.work, "release", [ARCHIVE, SHA256], |into| {
        let archive = place.work.join("release.tar.gz");
        let uri = format!("{}/{ARCHIVE}", setup::mirror().trim_end_matches('/'));
        let mut download = Command::new("/usr/lib/apt/apt-helper");
        // The user `_apt` cannot write to a directory of root.
        download.args(["-o", "APT::Sandbox::User=root", "download-file", &uri]);
        logged(download.arg(&archive).arg(format!("SHA256:{SHA256}")), place.log)?;
        let mut unpack = Command::new("tar");
        unpack
            .args(["--extract", "--gzip", "--strip-components=1", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(into);
        logged(&mut unpack, place.log)?;
        super::remove(&archive)
    })
}

/// Compiles the parts, unless they exist. `changed` are the files that hooks have changed.
pub(super) fn ensure(place: &Place<'_>, archive: &Path, changed: &BTreeMap<String, String>) -> Result<PathBuf> {
    let changed: Vec<_> = changed.iter().filter(|(file, _)| is_c(file)).collect();
    let parts = changed.iter().flat_map(|(file, text)| [file.as_str(), text.as_str()]);
    made(&place.work, "blobs", inputs().chain(parts), |into| {
        say("compiling the vDSO and the signal handler");
        let sources = place.work.join("sources");
        super::remove_directory(&sources)?;
        for directory in [VDSO_DIRECTORY, SYSTRAP] {
            copy(&archive.join(directory), &sources.join(directory))?;
        }
        for (file, text) in &changed {
            let path = sources.join(file);
            ensure!(path.is_file(), "{file} is part of neither the vDSO nor the signal handler: it cannot be changed");
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        make(place, &sources, into)?;
        super::remove_directory(&sources)
    })
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry.with_context(|| format!("list {}", from.display()))?;
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))
                .with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn make(place: &Place<'_>, sources: &Path, into: &Path) -> Result<()> {
    for result in RESULTS {
        let directory = into.join(result);
        let directory = directory.parent().context("a result has no directory")?;
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    let [vdso, handler, offsets] = RESULTS.map(|result| into.join(result));
    let mut compile = Command::new("g++");
    compile.current_dir(sources.join(VDSO_DIRECTORY)).args(VDSO).arg("-o").arg(&vdso);
    logged(compile.args(["vdso.cc", "vdso_time.cc"]), place.log)?;
    signal_handler(place, &sources.join(SYSTRAP), (&handler, &offsets))?;
    for result in [&vdso, &handler, &offsets] {
        let bytes = fs::metadata(result).with_context(|| format!("look at {}", result.display()))?.len();
        ensure!(bytes > 512, "{} has only {bytes} bytes: see {}", result.display(), place.log.display());
    }
    Ok(())
}

fn signal_handler(place: &Place<'_>, sources: &Path, (handler, offsets): (&Path, &Path)) -> Result<()> {
    let mut linked = Vec::new();
    for part in PARTS {
        let object = sources.join(part).with_extension("o");
        // The linker script keeps debug information, and the same sources must give the same
        // program in every directory.
        let mut map = OsString::from("-ffile-prefix-map=");
        map.push(sources);
        map.push("=.");
        let mut compile = Command::new("gcc");
        logged(compile.current_dir(sources).args(CC).arg(map).arg("-o").arg(&object).arg(part), place.log)?;
        linked.push(object);
    }
    let program = sources.join("sighandler.bin.o");
    let mut link = Command::new("ld");
    link.args(["-pie", "-z", "noexecstack", "-T"]).arg(sources.join("pie.lds.S")).args(&linked);
    logged(link.arg("-o").arg(&program), place.log)?;
    logged(Command::new("objcopy").args(["-O", "binary"]).arg(&program).arg(handler), place.log)?;
    let mut generate = Command::new("bash");
    generate.arg(sources.join("gen_offsets_go.sh")).args(["sighandler", "Sighandler"]).arg(&program);
    let output = generate.output().context("start bash for gen_offsets_go.sh")?;
    ensure!(output.status.success(), "gen_offsets_go.sh failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    fs::write(offsets, output.stdout).with_context(|| format!("write {}", offsets.display()))
}
