//! Tries whether our build of gVisor leaves restored memory in its image on this host, before
//! anything uses it.
//!
//! A sandbox without network and without an image is saved and restored by an engine of its own in
//! the directory `try`. The trial succeeds if memory stays in the image, its content is right,
//! and a write of the guest does not reach the image. It ends within a limit and leaves nothing;
//! after a crash, the next start removes what is left. Its outcome is noted. A success counts until
//! the next boot, for the same build and file system; a failure is only shown, and tried again at
//! the next start.

#![allow(clippy::disallowed_methods, reason = "nothing else runs before the engine is open")]

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_client::{Agent, ExitStatus, FirstReader, GuestString, Offsets, Output, ProcessSpec, Stdin};
use dorm_engine::{Engine as _, EngineError, RestoredMemory, RunSpec};
use dorm_lifecycle::{Egress, Resources, RunId, SandboxId};
use dorm_memory_image::IMAGE_FILES;
use futures_util::Stream;
use rustix::fs::StatVfsMountFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::builds::Builds;
use crate::bundle;
use crate::engine::{Config, GvisorEngine, make_directory};
use crate::error::chain;
use crate::no_network::NoNetwork;
use crate::probe::Probe;
use crate::process;

/// How long a trial may take. On an idle host it takes half a second.
const LIMIT: Duration = Duration::from_secs(30);
/// The name of the note in the engine's directory.
const NOTE: &str = "trial.json";
/// The name of the trial program in the root file system.
const PROGRAM: &str = "dorm-trial";
/// The name of its directory, which is part of the limited paths of sockets.
const PLACE: &str = "try";
/// The directories that the agent needs in a root file system.
const DIRECTORIES: [&str; 8] = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "usr"];

/// The digest of no image: a trial has a root file system of its own.
const NO_IMAGE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Why memory does not stay in its image.
#[derive(Debug, Error)]
pub(crate) enum TrialError {
    #[error("{} is on a file system that is mounted noexec, from which no memory can be mapped", .0.display())]
    NoExec(PathBuf),
    #[error("cannot {operation} {}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("the arguments of the trial process are invalid")]
    Arguments(#[from] dorm_agent_client::GuestError),
    #[error("a trial sandbox failed")]
    Engine(#[from] EngineError),
    #[error("the agent of a trial sandbox failed")]
    Agent(#[from] dorm_agent_client::AgentError),
    #[error("the placeholder digest of the trial image is invalid")]
    Digest(#[from] dorm_lifecycle::IdError),
    #[error("a trial sandbox took longer than {} s", LIMIT.as_secs())]
    Late,
    #[error("restored memory was read instead of being mapped from its image")]
    NotMapped,
    #[error("restored memory differs from the saved one: the trial process ended with {0:?}")]
    Wrong(ExitStatus),
    #[error("the trial process ended with {0:?} before it was saved")]
    Ended(ExitStatus),
    #[error("a write of a guest changed its memory image")]
    Changed,
}

/// The note of a trial: its outcome, and everything that it depends on.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Note {
    build: String,
    boot: String,
    device: u64,
    failure: Option<String>,
}

/// The outcome of the last trial of a build, as noted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrialOutcome {
    /// It was not tried since the last boot.
    Untried,
    /// Memory stays in its image.
    Succeeded,
    /// It does not, for this reason.
    Failed(String),
}

/// Returns the outcome of the last trial of a build in an engine's directory. Changes nothing.
pub fn trial_outcome(directory: &Path, found: &Probe) -> TrialOutcome {
    let Ok(device) = fs::metadata(directory).map(|facts| facts.dev()) else { return TrialOutcome::Untried };
    let noted = fs::read(directory.join(NOTE)).ok().and_then(|text| serde_json::from_slice::<Note>(&text).ok());
    match noted {
        Some(Note { build, boot, device: on, failure })
            if build == found.build && boot == process::boot() && on == device =>
        {
            failure.map_or(TrialOutcome::Succeeded, TrialOutcome::Failed)
        }
        Some(_) | None => TrialOutcome::Untried,
    }
}

/// Tries the first of `builds`, unless a trial in this directory has succeeded before.
pub(crate) async fn succeeds(config: &Config, (builds, found): (&Builds, &Probe)) -> Result<(), TrialError> {
    let directory = &config.directory;
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    if trial_outcome(directory, found) == TrialOutcome::Succeeded {
        return Ok(());
    }
    let tried = attempt_in(directory, config, (builds, found)).await;
    let device = fs::metadata(directory).map_err(failed("read the metadata of", directory))?.dev();
    let failure = tried.as_ref().err().map(|error| chain(error));
    let note = Note { build: found.build.clone(), boot: process::boot(), device, failure };
    let (file, new) = (directory.join(NOTE), directory.join("trial.json.new"));
    let text = serde_json::to_vec(&note).map_err(|error| failed("write", &file)(error.into()))?;
    // A note that is lost or cut off only costs another trial.
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
    written.map_err(failed("write", &file))?;
    tried
}

/// Removes what a trial has left that a crash interrupted, and that is not repeated at this start.
pub(crate) async fn clear(config: &Config, (builds, found): (&Builds, &Probe)) -> Result<(), TrialError> {
    if !config.directory.join(PLACE).exists() {
        return Ok(());
    }
    // Nothing is written, so that a full disk does not prevent it.
    let place = Place::in_engine(&config.directory);
    let engine = place.open(config, builds, found).await?;
    engine.sweep(&[]).await?;
    engine.close().await;
    drop(engine);
    place.remove()
}

async fn attempt_in(directory: &Path, config: &Config, (builds, found): (&Builds, &Probe)) -> Result<(), TrialError> {
    if has_flag(directory, StatVfsMountFlags::NOEXEC)? {
        return Err(TrialError::NoExec(directory.to_owned()));
    }
    let place = Place::make(directory, config)?;
    let engine = place.open(config, builds, found).await?;
    // Runs of a trial that a crash interrupted.
    engine.sweep(&[]).await?;
    let tried = tokio::time::timeout(LIMIT, attempt(&engine, &place)).await;
    for line in engine.sweep(&[]).await? {
        tracing::debug!("trial of a build: {line}");
    }
    engine.close().await;
    drop(engine);
    place.remove()?;
    tried.map_err(|_| TrialError::Late)?
}

fn has_flag(path: &Path, flag: StatVfsMountFlags) -> Result<bool, TrialError> {
    let facts = rustix::fs::statvfs(path).map_err(|error| failed("read the metadata of", path)(error.into()))?;
    Ok(facts.f_flag.contains(flag))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrialError {
    let path = path.to_owned();
    move |source| TrialError::File { operation, path, source }
}

/// The directory of a trial, which is also that of its engine: a longer path would leave less room
/// for the paths of sockets.
struct Place {
    directory: PathBuf,
    rootfs: PathBuf,
    image: PathBuf,
}

impl Place {
    /// Returns the place in the directory of an engine, whether it exists or not.
    fn in_engine(engine: &Path) -> Self {
        let directory = engine.join(PLACE);
        Self { rootfs: directory.join("rootfs"), image: directory.join("image"), directory }
    }

    /// Makes the directory, with a root file system that has one program.
    fn make(engine: &Path, config: &Config) -> Result<Self, TrialError> {
        let place = Self::in_engine(engine);
        let Self { directory, rootfs, image } = &place;
        for old in [rootfs, image] {
            remove_directory(old)?;
        }
        let owner = config.guest_ids.base();
        for open in [engine, directory, rootfs] {
            make_directory(open, 0o711)?;
        }
        make_directory(image, 0o700)?;
        for name in DIRECTORIES {
            let path = rootfs.join(name);
            make_directory(&path, 0o755)?;
            std::os::unix::fs::chown(&path, Some(owner), Some(owner)).map_err(failed("change the owner of", &path))?;
        }
        for (name, content) in [(bundle::AGENT.trim_start_matches('/'), &[][..]), (PROGRAM, config.trial)] {
            let file = rootfs.join(name);
            fs::write(&file, content).map_err(failed("write", &file))?;
            let opened = fs::set_permissions(&file, fs::Permissions::from_mode(0o755));
            opened.map_err(failed("set the mode of", &file))?;
            std::os::unix::fs::chown(&file, Some(owner), Some(owner)).map_err(failed("change the owner of", &file))?;
        }
        std::os::unix::fs::chown(rootfs, Some(owner), Some(owner)).map_err(failed("change the owner of", rootfs))?;
        Ok(place)
    }

    async fn open(&self, config: &Config, builds: &Builds, found: &Probe) -> Result<Arc<GvisorEngine>, TrialError> {
        let config = Config {
            directory: self.directory.clone(),
            network: Arc::new(NoNetwork),
            warm_containers: 0,
            // A prover examines the steps of what the daemon does for its callers.
            steps: dorm_steps::pass(),
            ..config.clone()
        };
        let capabilities = builds.capabilities(found, RestoredMemory::Mapped);
        Ok(GvisorEngine::assemble(config, builds.clone(), capabilities).await?)
    }

    fn remove(self) -> Result<(), TrialError> {
        remove_directory(&self.directory)
    }
}

fn remove_directory(path: &Path) -> Result<(), TrialError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Saves and restores a sandbox, and checks its memory and its image.
async fn attempt(engine: &GvisorEngine, place: &Place) -> Result<(), TrialError> {
    let mut random = [0; 20];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| failed("read", Path::new("/dev/urandom"))(error.into()))?;
    let run = RunId { sandbox: SandboxId::from_random(random), generation: 1 };
    let spec = RunSpec {
        run: run.clone(),
        image: NO_IMAGE.parse()?,
        rootfs: place.rootfs.clone(),
        layers: Vec::new(),
        resources: Resources { disk_bytes: 64 << 20, memory_bytes: 128 << 20, ..Resources::default() },
        egress: Egress::None,
        mounts: Vec::new(),
        build: None,
    };
    engine.start(&spec).await?;
    let agent = Agent::connect(engine.agent(&run).await?, run.generation).await?;
    let process = begin_process(&agent).await?;
    agent.quiesce().await?;
    engine.save(&run, &place.image, &[]).await?;
    engine.stop(&run).await?;
    let pages = place.image.join(IMAGE_FILES[2]);
    let before = hash(&pages)?;
    let run = RunId { generation: 2, ..run };
    engine.restore(&RunSpec { run: run.clone(), ..spec }, &place.image).await?;
    let inode = fs::metadata(&pages).map_err(failed("read the metadata of", &pages))?.ino();
    let maps = PathBuf::from(format!("/proc/{}/maps", engine.sandbox_process(&run)?));
    if mapped_bytes(&fs::read_to_string(&maps).map_err(failed("read", &maps))?, inode) == 0 {
        return Err(TrialError::NotMapped);
    }
    let agent = Agent::connect(engine.agent(&run).await?, run.generation).await?;
    agent.write_stdin(process, bytes::Bytes::from_static(b"\n")).await?;
    let status = agent.wait(process).await?;
    if !matches!(status, ExitStatus::Code(0)) {
        return Err(TrialError::Wrong(status));
    }
    engine.stop(&run).await?;
    if hash(&pages)? != before { Err(TrialError::Changed) } else { Ok(()) }
}

/// Starts the process with known memory, and waits until it has filled that.
async fn begin_process(agent: &Agent) -> Result<u64, TrialError> {
    let arguments = [format!("/{PROGRAM}")].into_iter().map(GuestString::new).collect::<Result<_, _>>()?;
    let spec = ProcessSpec { stdin: Stdin::Pipe, first_reader: FirstReader::Expected, ..ProcessSpec::new(arguments) };
    let process = agent.start(&spec).await?.process;
    let mut output = agent.output(process, Offsets::BEGINNING).await?;
    loop {
        match std::future::poll_fn(|context| Pin::new(&mut output).poll_next(context)).await {
            Some(Ok(Output::Stdout { .. })) => return Ok(process),
            Some(Ok(Output::Stderr { .. } | Output::Lost { .. })) => {}
            Some(Ok(Output::Exited(status))) => return Err(TrialError::Ended(status)),
            Some(Err(error)) => return Err(error.into()),
            None => return Err(dorm_agent_client::AgentError::NoProcess(process).into()),
        }
    }
}

fn hash(path: &Path) -> Result<blake3::Hash, TrialError> {
    let mut hasher = blake3::Hasher::new();
    let file = fs::File::open(path).map_err(failed("open", path))?;
    hasher.update_reader(file).map_err(failed("read", path))?;
    Ok(hasher.finalize())
}

/// Returns how many bytes of the image file with this inode are mapped, according to a process's
/// list of mappings. Some file systems show another device there than in the file's metadata.
fn mapped_bytes(maps: &str, inode: u64) -> u64 {
    let inode = inode.to_string();
    let bytes = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let range = words.next()?;
        let (number, path) = (words.nth(3)?, words.next()?);
        let (start, end) = range.split_once('-').filter(|_| number == inode && path.ends_with(IMAGE_FILES[2]))?;
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_the_file_count() {
        let maps = "\
            00400000-00452000 r-xp 00000000 fe:00 173521 /usr/bin/runsc\n\
            7f0000000000-7f0000010000 r--s 00010000 fe:00 42 /data/trial/image/pages.img\n\
            7f0000020000-7f0000021000 r--s 00020000 fe:00 42 /data/trial/image/pages.img (deleted)\n\
            7f0000030000-7f0000031000 r--s 00020000 fe:01 42 /other\n\
            7f0000040000-7f0000041000 r--s 00020000 fe:00 7 /data/pages.img\n\
            7ffc3a000000-7ffc3a021000 rw-p 00000000 00:00 0 [stack]\nnonsense\n\n";
        assert_eq!(mapped_bytes(maps, 42), 0x11000);
        assert_eq!(mapped_bytes(maps, 43), 0);
    }
}
