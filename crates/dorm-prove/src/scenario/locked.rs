//! Another process, such as a backup, holds the write lock of the database for a while: pending
//! operations wait or fail with the cause, reads are answered, and nothing is lost.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::json;

use crate::host::word;
use crate::report::Kind;
use crate::steps::{Act, Step};
use crate::world::{Fault, Stage, World, fault};

/// The offset in `dormouse.db-shm` of the byte that SQLite locks for a writer.
const WRITER: i64 = 120;
/// A lock time that the daemon waits for, and one after which it gives up.
const HELD: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(33)];
/// How long an operation may take beyond that.
const BEYOND: Duration = Duration::from_secs(90);
/// The longest time for an answer to a read.
const READ: Duration = Duration::from_secs(10);
/// The step before each change of the records.
const COMMIT: &str = "store: about to commit";

/// The lock, until it is dropped.
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        let end = Instant::now() + BEYOND;
        while let Err(error) = lock_byte(&file) {
            if Instant::now() > end {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self(file))
    }
}

#[allow(unsafe_code)]
fn lock_byte(file: &File) -> io::Result<()> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: WRITER,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the request reads one `struct flock`, which outlives the call, and the descriptor is
    // open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks the database at each commit of a suspend for a short time, and at one of them for longer
/// than the daemon waits.
pub(super) async fn run(world: &mut World) -> Result<(u64, Vec<Fault>)> {
    let commits = {
        let probe = world.sleeper(Stage::Running).await?;
        world.watcher.begin(None);
        world.daemon.act(&probe.id, "suspend").await?;
        world.sleeper = Some(probe);
        let commits = world.watcher.times(COMMIT);
        world.watcher.end();
        commits
    };
    if commits == 0 {
        bail!("a suspend has no step '{COMMIT}'");
    }
    let mut faults = Vec::new();
    let short = (1..=commits).map(|time| (time, HELD[0]));
    let cases: Vec<_> = short.chain([(1, HELD[1]), (commits, HELD[1])]).collect();
    let count = cases.len() as u64;
    for (time, held) in cases {
        faults.extend(suspend(world, time, held).await.with_context(|| format!("{COMMIT} ({time}), {held:?}"))?);
    }
    Ok((count, faults))
}

async fn suspend(world: &mut World, time: u32, held: Duration) -> Result<Vec<Fault>> {
    let mut probe = world.sleeper(Stage::Running).await?;
    // Earlier operations are over.
    let mut faults = world.settle().await?;
    let path = world.traces.data.join("dormouse.db-shm");
    let failure = Arc::new(Mutex::new(None));
    world.watcher.begin(Some((Step::nth(COMMIT, time), Act::Meanwhile(hold(path, held, failure.clone())))));
    let asked = format!("/sandboxes/{}/suspend", probe.id);
    let suspended = world.daemon.try_ask(Method::POST, &asked, Some(json!({})));
    let read = async {
        tokio::time::sleep(held / 2).await;
        tokio::time::timeout(READ, world.daemon.describe(&probe.id)).await
    };
    let (suspended, read) = tokio::join!(tokio::time::timeout(held + BEYOND, suspended), read);
    let (_, hit) = world.watcher.end();
    if let Some(failure) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(failure);
    }
    if !hit {
        bail!("the step '{COMMIT}' ({time}) did not come");
    }
    if !matches!(read, Ok(Ok(_))) {
        faults
            .push((Kind::WrongAnswer, format!("a sandbox cannot be described while the database is locked: {read:?}")));
    }
    let suspended = match suspended {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            faults.push((Kind::WrongAnswer, format!("no answer to a suspend with the database locked: {error:#}")));
            None
        }
        Err(_) => {
            faults.push((Kind::WrongAnswer, "a suspend with the database locked is not answered".to_owned()));
            None
        }
    };
    faults.extend(world.settle().await?);
    let view = world.daemon.describe(&probe.id).await?;
    let state = word(&view, "state");
    match suspended.map(|answer| (answer.status < 400, answer.body)) {
        Some((true, _)) if state != "suspended" => {
            faults.push((Kind::SandboxLost, format!("sandbox {} is {state}, and was said to be suspended", probe.id)));
        }
        Some((false, body)) if held == HELD[0] => {
            let what = format!("a suspend failed for a lock of {} s: {body}", held.as_secs());
            faults.push((Kind::WrongAnswer, what));
        }
        _ => {}
    }
    if !matches!(state.as_str(), "running" | "suspended") {
        let what = format!("sandbox {} is {state} after the database was locked: {}", probe.id, view["cause"]);
        faults.push((Kind::SandboxLost, what));
        return Ok(faults);
    }
    world.daemon.act(&probe.id, "resume").await.context("resume with the database free again")?;
    faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
    world.sleeper = Some(probe).filter(|_| faults.is_empty());
    Ok(faults)
}

/// Takes the lock, and releases it after `held`.
fn hold(path: PathBuf, held: Duration, failure: Arc<Mutex<Option<anyhow::Error>>>) -> Box<dyn FnOnce() + Send> {
    Box::new(move || match Lock::take(&path) {
        Ok(lock) => drop(std::thread::spawn(move || {
            std::thread::sleep(held);
            drop(lock.0);
        })),
        Err(error) => *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
    })
}
