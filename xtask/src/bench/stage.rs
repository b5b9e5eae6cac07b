//! The surroundings of the bench: its directory, its daemons and its peer. Each daemon is ended
//! with all its sandboxes, whether its part succeeds, fails, or is interrupted. A bench that was
//! killed leaves them; the next one ends them.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use dorm_cgroup::{Cgroup, GroupUsage};
use dorm_testing::{Daemon, left_overs};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::peer::Peer;
use crate::setup::{Clients, Environment};

/// The directories of benches, in that of temporary files; the id of the process follows.
const PREFIX: &str = "dormouse-bench-";

/// The control groups of peers whose use of resources is measured.
const GROUPS: [&str; 2] = ["fork", "idle"];

/// The programs, directories and settings of one bench.
pub(super) struct Stage {
    pub(super) dorm: PathBuf,
    pub(super) images: PathBuf,
    /// Contains everything that the bench writes.
    pub(super) directory: PathBuf,
    /// The root file system of the image `base`.
    pub(super) rootfs: PathBuf,
    /// The peer's `runsc`.
    pub(super) stock: PathBuf,
    /// The daemon's `runsc`.
    pub(super) engine: PathBuf,
    pub(super) clients: Clients,
    /// Whether to repeat less.
    pub(super) short: bool,
    interrupted: watch::Receiver<bool>,
}

impl Stage {
    /// Prepares the directory, after ending what killed benches have left.
    pub(super) async fn new(
        dorm: &Path,
        (environment, clients): (&Environment, Clients),
        engine: Option<&Path>,
        short: bool,
    ) -> Result<Self> {
        let temporary = std::env::temp_dir();
        let directory = temporary.join(format!("{PREFIX}{}", std::process::id()));
        let interrupted = interruption()?;
        let stage = Self {
            dorm: dorm.to_owned(),
            images: environment.images.clone(),
            directory,
            rootfs: environment.images.join(&environment.base).join("rootfs"),
            stock: environment.stock_runsc.clone(),
            engine: engine.unwrap_or(&environment.runsc).to_owned(),
            clients,
            short,
            interrupted,
        };
        for entry in fs::read_dir(&temporary).context("list temporary files")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.strip_prefix(PREFIX) else { continue };
            if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
                eprintln!("bench: ending what an earlier bench has left in {}", entry.path().display());
                stage.sweep(&entry.path()).await?;
            }
        }
        fs::create_dir_all(&stage.directory).with_context(|| format!("make {}", stage.directory.display()))?;
        Ok(stage)
    }

    /// Returns how often to repeat something: `full` times, or less.
    pub(super) fn rounds(&self, full: usize) -> usize {
        if self.short { full.min(3) } else { full }
    }

    /// Returns a directory below its own.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns a peer with a directory of its own.
    pub(super) fn peer(&self, directory: &Path) -> Result<Peer> {
        Peer::new(&self.stock, directory, &self.rootfs)
    }

    /// Returns a peer in a control group of its own, to measure it.
    pub(super) fn peer_in_group(&self, name: &str) -> Result<Peer> {
        debug_assert!(GROUPS.contains(&name), "the group {name} would not be removed after a kill");
        let group = format!("{PREFIX}{}-{name}", std::process::id());
        self.peer(&self.path(&format!("peer-{name}")))?.in_group(&group)
    }

    fn start(&self, data: &Path, options: &[&str]) -> Result<Daemon> {
        let engine = self.engine.display().to_string();
        let mut all = vec!["--runsc", engine.as_str()];
        all.extend(options);
        let log = std::env::temp_dir().join("dorm-bench.log");
        // A signal from a terminal is for the bench, which still needs the daemon to clean up.
        Daemon::start_prepared(&self.dorm, data, &self.images, &log, &all, |command| {
            command.process_group(0);
        })
    }

    /// Starts a daemon with its data in `data`, does `work` with it, and ends it with all its
    /// sandboxes, also if the work fails or the bench is interrupted.
    pub(super) async fn with_daemon<T>(
        &self,
        data: &Path,
        options: &[&str],
        work: impl AsyncFnOnce(&mut Daemon) -> Result<T>,
    ) -> Result<T> {
        let mut interrupted = self.interrupted.clone();
        let mut daemon = self.start(data, options)?;
        let done = tokio::select! {
            done = work(&mut daemon) => done,
            _ = interrupted.wait_for(|now| *now) => Err(anyhow::anyhow!("interrupted")),
        };
        let ended = finish(daemon).await;
        match (done, ended) {
            (Ok(done), ended) => ended.map(|()| done),
            (Err(error), ended) => {
                if let Err(ended) = ended {
                    eprintln!("bench: and then: {ended:#}");
                }
                Err(error)
            }
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        *self.interrupted.borrow()
    }

    /// Ends the daemons, containers and mounts below the directory of an earlier bench.
    async fn sweep(&self, directory: &Path) -> Result<()> {
        let below =
            |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut places: Vec<_> = below(directory).collect();
        places.extend(below(directory).flat_map(|place| below(&place).collect::<Vec<_>>()));
        for data in places.iter().filter(|place| place.join("identity.json").exists()) {
            kill_daemon_of(data);
            finish(self.start(data, &[])?).await?;
        }
        for place in places.iter().filter(|place| place.join("overlay").exists() && place.join("root").exists()) {
            drop(self.peer(place)?);
        }
        let pid = directory.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        for name in GROUPS {
            if let Some(group) = Cgroup::find(&format!("{PREFIX}{}-{name}", pid.unwrap_or_default()))? {
                group.kill_all()?;
                group.remove()?;
            }
        }
        super::reflink::unmount_below(directory)?;
        fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))
    }

    /// Removes its directory.
    pub(super) fn clear(&self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("bench: cannot remove {}: {error}", self.directory.display());
        }
    }
}

/// Ends the daemon of a bench that was killed.
fn kill_daemon_of(data: &Path) {
    let serving = format!("--data {} ", data.display());
    let daemons = dorm_testing::processes_of(data).into_iter();
    for (pid, _) in daemons.filter(|(_, line)| line.contains(" serve ") && line.contains(&serving)) {
        let _ = dorm_testing::signal(pid, rustix::process::Signal::KILL);
        while Path::new("/proc").join(pid.to_string()).exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Ends every sandbox of a daemon, and the daemon, and removes its data. A daemon that does not
/// answer is started again first.
async fn finish(mut daemon: Daemon) -> Result<()> {
    let data = daemon.data().to_owned();
    if daemon.end_sandboxes().await.is_err() {
        let _ = daemon.kill();
        daemon.start_again().context("start the daemon again to end its sandboxes")?;
    }
    daemon.end().await?;
    let left = left_overs(&data);
    if !left.is_empty() {
        bail!("the daemon on {} has left: {}", data.display(), left.join("; "));
    }
    Ok(())
}

/// Returns a value that becomes true when the bench is told to stop.
fn interruption() -> Result<watch::Receiver<bool>> {
    let (send, receive) = watch::channel(false);
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        signals.push(signal(kind).context("listen for signals")?);
    }
    tokio::spawn(async move {
        let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures_util::future::select_all(any).await;
        eprintln!("bench: interrupted; ending what was started");
        let _ = send.send(true);
        // Keeps the value.
        send.closed().await;
    });
    Ok(receive)
}

/// The use of resources by a daemon and its sandboxes. Sandboxes have control groups; the daemon's
/// own counts no CPU time, so that of its process is read.
pub(super) struct Groups {
    prefix: String,
    daemon: u32,
}

impl Groups {
    pub(super) fn of(daemon: &Daemon) -> Result<Self> {
        let path = daemon.data().join("identity.json");
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let identity: serde_json::Value =
            serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))?;
        let prefix = identity["prefix"].as_str().context("the daemon's identity has no prefix")?;
        Ok(Self { prefix: format!("dormouse-{prefix}"), daemon: daemon.pid() })
    }

    /// Returns what all its sandboxes use together.
    pub(super) fn sandboxes(&self) -> Result<GroupUsage> {
        let group = Cgroup::find(&self.prefix)?.with_context(|| format!("there is no group {}", self.prefix))?;
        Ok(group.usage()?)
    }

    /// Returns the memory of the sandboxes and the daemon, without file cache, and the file cache
    /// of the sandboxes, in MiB.
    pub(super) fn memory_mib(&self) -> Result<(f64, f64)> {
        let (memory, cache) = mib_of(self.sandboxes()?);
        Ok((memory + resident_mib(self.daemon)?, cache))
    }

    /// Returns the CPU time of the sandboxes and the daemon so far, in milliseconds.
    pub(super) fn cpu_ms(&self) -> Result<f64> {
        let micros = self.sandboxes()?.cpu_micros.context(NO_CPU_TIME)?;
        Ok(micros as f64 / 1000.0 + cpu_ms_of(self.daemon)?)
    }

    /// Returns the CPU time of each container so far, in milliseconds.
    pub(super) fn cpu_ms_of_each(&self) -> Result<Vec<(String, f64)>> {
        let mut all = Vec::new();
        for name in Cgroup::list(&self.prefix)? {
            let Some(group) = Cgroup::find(&name)? else { continue };
            all.push((name, group.usage()?.cpu_micros.context(NO_CPU_TIME)? as f64 / 1000.0));
        }
        Ok(all)
    }
}

pub(super) const NO_CPU_TIME: &str = "this host does not count the CPU time of control groups";

/// Returns memory without file cache, and file cache, in MiB.
pub(super) fn mib_of(usage: GroupUsage) -> (f64, f64) {
    (usage.memory_bytes as f64 / 1_048_576.0, usage.cache_bytes as f64 / 1_048_576.0)
}

/// Returns the memory of a process, in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read the daemon's status")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: f64| kib / 1024.0).context("the daemon has no memory")
}

/// Returns the CPU time of a process so far, in milliseconds.
pub(super) fn cpu_ms_of(pid: u32) -> Result<f64> {
    /// A hundredth of a second, as the kernel counts.
    const TICK_MS: u64 = 10;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read the daemon's times")?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(((ticks(11) + ticks(12)) * TICK_MS) as f64)
}
