//! Prepares a host for tests, demo and benchmarks: packages, the test runner, and a base image.
//!
//! Every step can be repeated and is fast if there is nothing to do; two set-ups at the same time
//! wait for each other. Messages go to standard error. It knows Debian 12; on other systems it says
//! what to install by hand.

mod base;
mod interpreter;
mod mirror;
mod node;
mod packages;
mod process;
mod python;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dorm_storage::Storage;
pub(crate) use interpreter::READY as INTERPRETER_READY;
pub(crate) use packages::{add_backports, apt, is_release as is_debian};
pub(crate) use process::{find, run as logged};

use crate::engine::{self, Engine};

/// The packages of the tests of the generated client.
const TEST_PACKAGES: &str = "crates/dorm/tests/generated/requirements.txt";
/// The packages of the Python SDK.
const SDK_PACKAGES: &str = "sdk/python/requirements-dev.txt";
/// The clients of E2B for Python, newest first, each with the name of its environment.
const E2B_PACKAGES: [(&str, &str); 2] = [
    ("integrations/e2b/python/requirements.txt", "e2b-python"),
    ("integrations/e2b/python/requirements-2.45.txt", "e2b-python-2.45"),
];

/// The paths of a prepared host.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// The directory of xtask in it: base image, logs, data of tests.
    pub(crate) work: PathBuf,
    /// The images directory that all tests and the demo share. It contains an image with the tag
    /// `base`.
    pub(crate) images: PathBuf,
    /// The digest of the base image.
    pub(crate) base: String,
    /// The archive it was imported from.
    pub(crate) base_tar: PathBuf,
    /// The gVisor runtime that tests, demo and bench use: our own build, or the stock one if ours
    /// cannot be built on this host.
    pub(crate) runsc: PathBuf,
    /// The gVisor runtime of the distribution.
    pub(crate) stock_runsc: PathBuf,
}

/// Runs the set-up and prints the paths.
///
/// # Errors
///
/// If something is missing and cannot be installed, with what to do.
pub(crate) fn run() -> Result<()> {
    let environment = ensure()?;
    ensure_tools(&environment)?;
    let clients = ensure_clients(&environment)?;
    ensure_interpreter(&crate::build::dorm()?, &environment, &clients)?;
    let Environment { root, target, work, images, base, base_tar, runsc, stock_runsc } = &environment;
    println!("repository  {}", root.display());
    println!("target      {}", target.display());
    println!("work        {}", work.display());
    println!("images      {}", images.display());
    println!("base image  {base}");
    println!("base tar    {}", base_tar.display());
    println!("runsc       {}", runsc.display());
    println!("stock runsc {}", stock_runsc.display());
    Ok(())
}

/// Ensures that everything is there.
///
/// # Errors
///
/// If something is missing and cannot be installed, with what to do.
pub(crate) fn ensure() -> Result<Environment> {
    if fs::metadata("/proc/self").context("look at /proc/self")?.uid() != 0 {
        bail!(
            "Dormouse runs and tests sandboxes as root, and so does its set-up: run `sudo env \"PATH=$PATH\" cargo \
             xtask setup`, or open a root shell"
        );
    }
    let root = root()?;
    let target = target()?;
    let work = target.join("dormouse");
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let held = lock(&work.join("setup.lock"))?;

    let log = work.join("setup.log");
    packages::ensure(&log)?;
    packages::ensure_nextest(&log)?;
    let stock_runsc = process::find("runsc").context("runsc is not on the PATH although its package is installed")?;
    let beside_dorm = target.join("release").join(engine::NAME);
    let runsc = match engine::ensure_built(&root.join(engine::SOURCES), &work, &log) {
        Ok(Engine { program, .. }) => {
            // There `dorm serve --runsc auto` finds it.
            engine::link(&program, &beside_dorm)?;
            program
        }
        Err(error) => {
            say(&format!("using the stock runsc, since dorm-runsc cannot be built: {error:#}"));
            engine::remove(&beside_dorm)?;
            stock_runsc.clone()
        }
    };
    let base_tar = base::ensure_tar(base::BASE, &work, &log)?;
    let (images, base) = ensure_image(base::BASE, &work, &base_tar)?;
    drop(held);
    Ok(Environment { root, target, work, images, base, base_tar, runsc, stock_runsc })
}

/// Builds the engine from the repository or the directory `from`, unless it exists. Unlike the rest
/// of the set-up it needs root only to add the backports.
///
/// # Errors
/// If it cannot be built, with the reason.
pub(crate) fn engine(from: Option<&Path>) -> Result<Engine> {
    let (root, work) = (root()?, target()?.join("dormouse"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let _held = lock(&work.join("setup.lock"))?;
    let sources = from.map_or_else(|| root.join(engine::SOURCES), Path::to_owned);
    engine::ensure_built(&sources, &work, &work.join("setup.log"))
}

/// Ensures that there is an image in which projects can be built, with the tag `tools`.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_tools(environment: &Environment) -> Result<()> {
    let work = &environment.work;
    let _held = lock(&work.join("setup.lock"))?;
    let tar = base::ensure_tar(base::TOOLS, work, &work.join("setup.log"))?;
    ensure_image(base::TOOLS, work, &tar).map(drop)
}

/// The programs that the tests of generated and hand-written clients need.
pub(crate) struct Clients {
    /// A Python with the packages of the tests.
    pub(crate) python: PathBuf,
    /// A Python with the packages of the Python SDK.
    pub(crate) sdk_python: PathBuf,
    /// Pythons with the clients of E2B, newest first.
    pub(crate) e2b_pythons: [PathBuf; 2],
    /// The directory of `node`.
    pub(crate) node: PathBuf,
}

/// Ensures that there are Pythons and a Node.js with the packages of the tests and the SDKs.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_clients(environment: &Environment) -> Result<Clients> {
    let Environment { root, work, .. } = environment;
    let _held = lock(&work.join("setup.lock"))?;
    let log = work.join("setup.log");
    let e2b = |(packages, name): (&str, &str)| python::ensure(&root.join(packages), &work.join(name), &log);
    let [newest, older] = E2B_PACKAGES;
    Ok(Clients {
        python: python::ensure(&root.join(TEST_PACKAGES), &work.join("python"), &log)?,
        sdk_python: python::ensure(&root.join(SDK_PACKAGES), &work.join("sdk-python"), &log)?,
        e2b_pythons: [e2b(newest)?, e2b(older)?],
        node: node::ensure(root, work, &log)?,
    })
}

/// Ensures that there is an image with the code interpreter, which the program `dorm` builds.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_interpreter(dorm: &Path, environment: &Environment, clients: &Clients) -> Result<()> {
    let _held = lock(&environment.work.join("setup.lock"))?;
    interpreter::ensure(dorm, environment, clients, &environment.work.join("setup.log"))
}

/// Returns the files from which an image is built, in order: those of its directory that are in the
/// repository, without its tests.
///
/// # Errors
/// If a directory cannot be listed.
pub(crate) fn image_files(directory: &Path) -> Result<Vec<PathBuf>> {
    const OTHERS: [&str; 7] = [".complete", ".gitignore", "__pycache__", "node_modules", "npm", "tests", "wheels"];
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
            match path.file_name() {
                Some(name) if OTHERS.iter().any(|other| name == *other) => {}
                _ if path.is_dir() => directories.push(path),
                _ => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Ensures that there is an emulator for virtual machines.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_emulator(work: &Path) -> Result<()> {
    let _held = lock(&work.join("setup.lock"))?;
    packages::ensure_emulator(&work.join("setup.log"))
}

/// Returns the Debian mirror of this host.
pub(crate) fn mirror() -> String {
    mirror::Sources::of_host().mirror("bookworm").to_owned()
}

/// Makes sure that the test runner is there. Unlike the rest of the set-up it needs neither root
/// nor Debian.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn ensure_runner() -> Result<()> {
    let work = target()?.join("dormouse");
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    packages::ensure_nextest(&work.join("setup.log"))
}

/// Returns the path of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not in a repository")?.to_owned())
}

/// Returns Cargo's target directory.
pub(crate) fn target() -> Result<PathBuf> {
    let root = root()?;
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |set| root.join(set)))
}

/// Imports an image, unless it exists.
fn ensure_image(recipe: base::Recipe, work: &Path, tar: &Path) -> Result<(PathBuf, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("start a runtime")?;
    let mut images = work.join("images");
    let mut storage = Storage::open(&work.join("data"), &images).context("open the storage")?;
    if let Some(closed) = storage.closed_to_guests() {
        // The repository may be in a home directory such as /root, where engines with guest ids
        // could not reach the image.
        images = PathBuf::from("/var/lib/dormouse-test/images");
        say(&format!("guests cannot pass through {}, so images are stored in {}", closed.display(), images.display()));
        storage = Storage::open(&work.join("data"), &images).context("open the storage")?;
    }
    // The digest is that of the archive's content, which only unpacking would reveal, so it is
    // noted beside the archive.
    let note = tar.with_extension("digest");
    if let Ok(noted) = fs::read_to_string(&note)
        && let Ok(image) = runtime.block_on(storage.resolve(recipe.name))
        && image.digest.as_str() == noted.trim_end()
    {
        // An image of an earlier version has other host ids, and gets the current ones.
        match runtime.block_on(storage.owned_image(&image.digest)) {
            Ok(image) => return Ok((images, image.digest.to_string())),
            Err(error) => {
                say(&format!("{error}: creating them again"));
                fs::remove_dir_all(&images).with_context(|| format!("remove {}", images.display()))?;
                storage = Storage::open(&work.join("data"), &images).context("open the storage")?;
            }
        }
    }
    let name = recipe.name;
    say(&format!("importing the image '{name}'"));
    let imported = runtime.block_on(storage.import(tar, Some(name), |_| {}));
    let image = imported.with_context(|| format!("import the image '{name}'"))?;
    let new = note.with_extension("digest.new");
    fs::write(&new, format!("{}\n", image.digest)).with_context(|| format!("write {}", new.display()))?;
    fs::rename(&new, &note).with_context(|| format!("rename {}", new.display()))?;
    say(&format!("image '{name}' {} with {} files", &image.digest.as_str()[..12], image.files));
    Ok((images, image.digest.to_string()))
}

/// Only one set-up runs at a time. The lock ends with the process.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("open {}", path.display()))?;
    if file.try_lock().is_err() {
        say("waiting for another set-up to end");
        file.lock().with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}

fn say(line: &str) {
    eprintln!("setup: {line}");
}
