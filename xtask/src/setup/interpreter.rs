//! The image of the code interpreter, for the tests of E2B's clients.
//!
//! A daemon builds it from its Dockerfile, as for users. Steps of a build in a test cannot reach
//! the registries, so this host downloads the packages and puts them where the Dockerfile looks
//! first.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use dorm_storage::Storage;
use dorm_testing::Daemon;

use super::process::run;
use super::{Clients, Environment, say};

/// The directory with the Dockerfile.
const DIRECTORY: &str = "images/code-interpreter";
/// Its tag.
const NAME: &str = "code-interpreter-v1";
/// Succeeds when the program of the image can run code.
pub(crate) const READY: &str = "curl -fs http://localhost:49999/health";
/// The Python in the image.
const PYTHON: &str = "3.11.2";
/// The C libraries that packages may be compiled for: all up to that of Debian 12.
const LIBRARIES: [&str; 8] = ["2_36", "2_34", "2_28", "2_27", "2_26", "2_17", "2_12", "2_5"];

/// Builds the image with the program `dorm`, unless the same one exists.
pub(super) fn ensure(dorm: &Path, environment: &Environment, clients: &Clients, log: &Path) -> Result<()> {
    let directory = environment.root.join(DIRECTORY);
    let key = format!("{}\n", key(&directory, &environment.base)?);
    let note = environment.work.join(format!("{NAME}.key"));
    if fs::read_to_string(&note).is_ok_and(|noted| noted == key) && exists(environment)? {
        return Ok(());
    }
    download(&directory.join("packages"), clients, log)?;
    say(&format!("building the image '{NAME}', which takes some minutes"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let data = std::env::temp_dir().join(format!("dormouse-setup-{}", std::process::id()));
    let daemon = Daemon::start(dorm, &data, &environment.images, log, &[])?;
    let mut build = Command::new(dorm);
    build.args(["image", "build", "--tag", NAME, "--ready-cmd", READY, "--egress", "none"]);
    build.args(["--memory", "2G", "--disk", "8G", "--data"]).arg(&data).arg(&directory);
    let built = run(&mut build, log);
    // Also of a build that has failed, nothing may be left.
    runtime.block_on(daemon.end())?;
    built.with_context(|| format!("build the image '{NAME}'"))?;
    fs::write(&note, key).with_context(|| format!("write {}", note.display()))
}

/// Whether there is an image with the tag.
fn exists(environment: &Environment) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("start a runtime")?;
    let storage = Storage::open(&environment.work.join("data"), &environment.images).context("open the storage")?;
    Ok(runtime.block_on(storage.resolve(NAME)).is_ok())
}

/// Returns a hash of everything that determines the image.
fn key(directory: &Path, base: &str) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for part in [base, READY].into_iter().chain(LIBRARIES) {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    for file in super::image_files(directory)? {
        let name = file.strip_prefix(directory).unwrap_or(&file);
        let content = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        hasher.update(name.as_os_str().as_encoded_bytes()).update(&[0]).update(blake3::hash(&content).as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Downloads the packages, unless they are there.
fn download(packages: &Path, clients: &Clients, log: &Path) -> Result<()> {
    let [wheels, npm, requirements] = ["wheels", "npm", "requirements.txt"].map(|name| packages.join(name));
    let wanted = fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    let lock = packages.join("package-lock.json");
    let wanted = [wanted, fs::read(&lock).with_context(|| format!("read {}", lock.display()))?].concat();
    // Not in `wheels`: it is no part of the context.
    let complete = packages.join(".complete");
    if fs::read(&complete).is_ok_and(|downloaded| downloaded == wanted) {
        return Ok(());
    }
    say("downloading the packages of the code interpreter");
    for old in [&wheels, &npm] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", old.display()));
            }
            _ => {}
        }
    }
    let mut pip = Command::new(clients.python.join("bin/pip"));
    pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON]);
    for library in LIBRARIES {
        pip.arg("--platform").arg(format!("manylinux_{library}_{}", std::env::consts::ARCH));
    }
    // The names of three of them in older packages.
    for older in ["2014", "2010", "1"] {
        pip.arg("--platform").arg(format!("manylinux{older}_{}", std::env::consts::ARCH));
    }
    pip.arg("--dest").arg(&wheels).arg("--requirement").arg(&requirements);
    run(&mut pip, log)?;
    // The installation is only made to fill the cache.
    let installed = packages.join("node_modules");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(clients.node.join("npm"));
    command.args(["ci", "--no-audit", "--no-fund", "--logs-max", "0", "--cache"]).arg(&npm).current_dir(packages);
    command.env("PATH", format!("{}:{path}", clients.node.display()));
    run(&mut command, log)?;
    fs::remove_dir_all(&installed).with_context(|| format!("remove {}", installed.display()))?;
    // Last, so that an interrupted download is repeated.
    fs::write(&complete, wanted).with_context(|| format!("write {}", complete.display()))
}
