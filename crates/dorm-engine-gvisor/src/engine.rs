//! The engine: its parts, and the methods of the port. Each method completes even if its caller is
//! dropped.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dorm_cgroup::{Cgroup, IoLimits};
use dorm_disk::lock::{self, LockError, Sharing};
use dorm_engine::{
    BoxStream, Capabilities, Engine, EngineError, Expectation, FileSink, ForeignRun, FoundRun, LeftOut, Mount, Network,
    NetworkError, Notice, RunSpec, Saved, Usage,
};
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, Egress, Resources, RunCondition, RunId};
use dorm_memory_image::FilesLimits;
use dorm_steps::AnySteps;
use dorm_worker::Program;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use crate::agents::{Agents, parts};
use crate::blocking::{blocking, in_place};
use crate::blocks;
use crate::boot::Origin;
use crate::builds::Builds;
use crate::error::{GvisorError, chain, unusable};
use crate::expected::Expected;
use crate::files;
use crate::filling::keep_filled;
use crate::held;
use crate::host::Host;
use crate::process;
use crate::root;
use crate::run::Runs;
use crate::save::Kept;
use crate::shared::Shared;
use crate::slots;
use crate::stream;
use crate::warm_pool::{Base, WarmContainer, WarmPool};

const NO_LIMIT: &str = "cannot limit the size of sandbox disks: load the kernel module loop and install e2fsprogs, or, if \
                        every guest is trusted, start the daemon with --allow-unlimited-disks";

/// How long to wait for the agent to receive SIGCONT. A stopped sandbox delivers the signal later
/// anyway.
const ROUSE: Duration = Duration::from_secs(1);

/// The configuration of the engine.
#[derive(Clone)]
pub struct Config {
    /// The engine's own directory, with notes, bundles and disks of running sandboxes. Only one
    /// engine at a time can use it.
    pub directory: PathBuf,
    /// The `runsc` programs to choose from, the preferred one first. The first that can be used
    /// here is taken.
    pub runsc: Vec<PathBuf>,
    /// Older builds of `runsc`, for the memory images that only they can restore.
    pub runsc_also: Vec<PathBuf>,
    /// The agent's static binary. Agents of earlier daemons are in directories beside its own.
    pub agent: PathBuf,
    /// The static program for trials, which checks its own memory.
    pub trial: &'static [u8],
    /// The network. No other engine may use it.
    pub network: Arc<dyn Network>,
    /// How many containers of each kind are kept warm for each of the most recently used images; 0
    /// disables the warm pool. There are two kinds: with and without network.
    pub warm_containers: usize,
    /// The control group below which each sandbox gets its own.
    pub cgroup_prefix: String,
    /// The host IDs of guests. Runs of an earlier daemon use the same.
    pub guest_ids: GuestIds,
    /// The ID of the data directory. Runs whose notes contain another ID are left alone.
    pub owner: String,
    /// The limits for reading files out of memory images.
    pub files: FilesLimits,
    /// The limits on the disk I/O of each sandbox.
    pub io: IoLimits,
    /// Whether sandboxes may have unlimited disks if the host has no loop devices.
    pub unlimited_disks: bool,
    /// Called at each step that changes the host; [`dorm_steps::pass`] does nothing.
    pub steps: AnySteps,
    /// The program whose workers parse memory images, with the roles
    /// [`dorm_memory_image::READERS`]. If `None`, this process parses them itself.
    pub reader: Option<Program>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("directory", &self.directory)
            .field("runsc", &self.runsc)
            .field("agent", &self.agent)
            .field("warm_containers", &self.warm_containers)
            .field("cgroup_prefix", &self.cgroup_prefix)
            .field("guest_ids", &self.guest_ids)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// The engine that runs sandboxes under gVisor.
pub struct GvisorEngine {
    shared: Arc<Shared>,
}

async fn can_limit_disks() -> Result<(), EngineError> {
    let probed = tokio::task::spawn_blocking(dorm_disk::Disk::probe).await;
    let probed = probed.map_err(|source| unusable("this is a bug; please report it", source))?;
    probed.map_err(|source| unusable(NO_LIMIT, source))
}

impl GvisorEngine {
    /// Checks the host, and adopts the runs of an earlier daemon without changing them. New runs
    /// use the first of `builds`, about which `found` was found.
    #[allow(clippy::disallowed_methods, reason = "nothing else runs before the engine is open")]
    pub(crate) async fn assemble(
        config: Config,
        builds: Builds,
        mut capabilities: Capabilities,
    ) -> Result<Arc<Self>, EngineError> {
        let Config {
            directory,
            agent,
            network,
            warm_containers,
            cgroup_prefix,
            guest_ids,
            owner,
            files,
            io,
            unlimited_disks,
            steps,
            reader,
            runsc: _,
            runsc_also: _,
            trial: _,
        } = config;
        if !unlimited_disks {
            can_limit_disks().await?;
        }
        fs::metadata(&agent)
            .map_err(|source| unusable("install the agent", GvisorError::file("use", &agent, source)))?;
        let Directories { root, containers, blanks, lock } = Directories::prepare(&directory, guest_ids)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|source| unusable("run the daemon where prctl is allowed", io::Error::from(source)))?;
        let host = Host {
            builds,
            agents: Agents::new(agent),
            network,
            containers,
            root,
            blanks,
            cgroup_prefix,
            guest_ids,
            owner,
            unlimited_disks,
            io,
            boot: process::boot(),
            leasing: tokio::sync::RwLock::default(),
            made: Mutex::default(),
            steps,
        };
        capabilities.shares_blocks = blocks::are_shared(&directory);
        let shared = Arc::new(Shared {
            host,
            runs: Runs::default(),
            warm_pool: WarmPool::new(warm_containers),
            expected: Expected::default(),
            reader,
            listener: Mutex::default(),
            files,
            reading: Semaphore::new(mib(files.memory_bytes) as usize),
            capabilities,
            _lock: lock,
        });
        shared.adopt().map_err(|source| unusable("check the data directory and its permissions", source))?;
        if warm_containers > 0 {
            tokio::spawn(keep_filled(Arc::downgrade(&shared)));
        }
        Ok(Arc::new(Self { shared }))
    }

    /// Returns how many warm containers are ready for `image`. For tests and metrics.
    pub fn warm_containers(&self, image: &Digest) -> usize {
        self.shared.warm_pool.count(image)
    }

    /// Returns the process id of the sandbox of a run.
    pub(crate) fn sandbox_process(&self, run: &RunId) -> Result<i32, EngineError> {
        let run = self.shared.runs.get(run)?;
        Ok(run.living("find the process of")?.processes.sandbox.pid())
    }

    /// Returns how many containers are ready for announced runs of `image`. For tests and metrics.
    pub fn expected_containers(&self, image: &Digest) -> usize {
        self.shared.expected.count(image.as_str())
    }

    /// Completes `work` even if the caller is dropped: a call interrupted in the middle would leave
    /// the run in an unknown state.
    async fn to_its_end<T, F>(&self, work: impl FnOnce(Arc<Shared>) -> F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let done = tokio::spawn(work(self.shared.clone())).await;
        done.unwrap_or_else(|source| Err(unusable("this is a bug; please report it", source)))
    }
}

/// The parts of the engine's own directory.
struct Directories {
    root: PathBuf,
    containers: PathBuf,
    blanks: PathBuf,
    lock: fs::File,
}

impl Directories {
    /// Creates what is missing, and locks the directory.
    fn prepare(directory: &Path, guest_ids: GuestIds) -> Result<Self, EngineError> {
        // Guests' host IDs must be able to traverse to the roots and slots below; the rest is
        // closed to them.
        make_directory(directory, 0o711)?;
        let make = |name: &str| {
            let path = directory.join(name);
            make_directory(&path, 0o700).map(|()| path)
        };
        let (root, containers, blanks) = (make("runsc")?, make("containers")?, make("blanks")?);
        root::make_directory(&root::directory(&containers), guest_ids)
            .map_err(|source| unusable("make its directory writable", source))?;
        let lock = lock_directory(directory)?;
        slots::prepare(&containers, guest_ids)
            .map_err(|source| unusable("run the daemon where mounting is allowed", source))?;
        Ok(Self { root, containers, blanks, lock })
    }
}

#[allow(clippy::disallowed_methods, reason = "nothing else runs before the engine is open")]
fn lock_directory(directory: &Path) -> Result<fs::File, EngineError> {
    let path = directory.join("lock");
    lock::take(&path, Sharing::Exclusive, Duration::ZERO).map_err(|error| match error {
        LockError::Held { .. } => {
            let hint =
                format!("another daemon uses {}: stop it, or choose another data directory", directory.display());
            unusable(hint, error)
        }
        LockError::Io { .. } => unusable("make its directory writable", error),
    })
}

/// Creates a directory with this mode, regardless of the umask. Changes the mode if it exists.
#[allow(clippy::disallowed_methods, reason = "nothing else runs before the engine is open")]
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), EngineError> {
    use std::os::unix::fs::PermissionsExt as _;
    let made = fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
    made.map_err(|source| unusable("make its directory writable", GvisorError::file("create", path, source)))
}

/// Converts bytes to MiB, rounded up and limited to the maximum of a semaphore.
fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX).clamp(1, 1 << 24)
}

impl Shared {
    /// Waits until there is memory to read the files of `image`. All readers share one memory
    /// limit.
    async fn reserve_to_read(&self, image: &Path) -> Result<SemaphorePermit<'_>, EngineError> {
        let share = in_place(|| files::share(image, self.files));
        let permit = self.reading.acquire_many(mib(share)).await;
        permit.map_err(|source| unusable("this is a bug; please report it", source))
    }

    fn agent(&self, id: &RunId) -> Result<BoxStream, EngineError> {
        const OPERATION: &str = "reach the agent of";
        let run = self.runs.get(id)?;
        let container = run.living(OPERATION)?;
        // The earlier stream must end before the new one discards its late data.
        run.cut(None);
        let (stream, thread) = in_place(|| stream::open(&container.home)).map_err(|error| error.of(OPERATION, id))?;
        run.cut(Some(thread));
        // A guest can stop its own agent. If the whole sandbox is stopped, the signal takes effect
        // when it continues.
        let (control, container) = (container.control.clone(), container.home.id().to_owned());
        tokio::spawn(async move {
            if let Err(error) = control.rouse(&container, ROUSE).await {
                tracing::debug!(container, error = %chain(&error), "cannot send SIGCONT to an agent");
            }
        });
        Ok(Box::new(stream))
    }

    async fn connect(&self, id: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        const OPERATION: &str = "connect to";
        let run = self.runs.get(id)?;
        let container = run.living(OPERATION)?;
        let Some(lease) = &container.lease else {
            let condition = "without network (use the agent)";
            return Err(EngineError::Condition { operation: OPERATION, run: id.clone(), condition });
        };
        match self.host.network.connect(lease.id, port).await {
            Ok(stream) => Ok(stream),
            Err(NetworkError::Refused(port)) => Err(EngineError::Refused { run: id.clone(), port }),
            Err(error) => Err(GvisorError::from(error).of(OPERATION, id)),
        }
    }

    async fn usage(&self, id: &RunId) -> Result<Usage, EngineError> {
        const OPERATION: &str = "measure";
        let run = self.runs.get(id)?;
        let container = run.living(OPERATION)?;
        let usage = container.group(Cgroup::usage).await.map_err(|error| error.of(OPERATION, id))?;
        Ok(Usage {
            cpu_micros: usage.cpu_micros.unwrap_or(0),
            memory_bytes: usage.memory_bytes,
            processes: usage.processes,
            disk_bytes: container.disk_bytes().await,
            network: match &container.lease {
                Some(lease) => Some(
                    self.host
                        .network
                        .traffic(lease.id)
                        .await
                        .map_err(|error| GvisorError::from(error).of(OPERATION, id))?,
                ),
                None => None,
            },
            disk_io: container.io_usage().await,
        })
    }
}

#[async_trait]
impl Engine for GvisorEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn restores(&self, build: &str) -> bool {
        let (runsc, _) = parts(build);
        let host = &self.shared.host;
        host.builds.for_images_of(runsc).is_some() && in_place(|| host.agents.restore(build))
    }

    async fn start(&self, spec: &RunSpec) -> Result<(), EngineError> {
        // Reserved before the first await: a stop that follows a dropped start must find the run.
        let reserved = self.shared.runs.reserve(&spec.run)?;
        let spec = spec.clone();
        self.to_its_end(|shared| async move { shared.begin("start", &spec, Origin::Cold, reserved).await }).await
    }

    async fn restore(&self, spec: &RunSpec, image: &Path) -> Result<(), EngineError> {
        let origin = in_place(|| Origin::open(image)).map_err(|error| error.of("restore", &spec.run))?;
        let reserved = self.shared.runs.reserve(&spec.run)?;
        let spec = spec.clone();
        self.to_its_end(|shared| async move { shared.begin("restore", &spec, origin, reserved).await }).await
    }

    async fn save(&self, run: &RunId, into: &Path, earlier: &[PathBuf]) -> Result<Saved, EngineError> {
        let (run, into, earlier) = (run.clone(), into.to_owned(), earlier.to_owned());
        self.to_its_end(|shared| async move { shared.save(&run, &into, Kept::Memory(&earlier)).await }).await
    }

    async fn save_files(&self, run: &RunId, into: &Path) -> Result<Saved, EngineError> {
        let (run, into) = (run.clone(), into.to_owned());
        self.to_its_end(|shared| async move { shared.save(&run, &into, Kept::Files).await }).await
    }

    async fn read_files(&self, image: &Path, sink: Box<dyn FileSink>) -> Result<LeftOut, EngineError> {
        let image = image.to_owned();
        self.to_its_end(|shared| async move {
            let limits = shared.files;
            let _memory = shared.reserve_to_read(&image).await?;
            let (directory, mut sink, reader) = (image.clone(), sink, shared.reader.clone());
            let read = blocking(move || match &reader {
                Some(program) => files::read_by(program, &directory, limits, sink.as_mut()),
                None => files::read(&directory, limits, sink.as_mut()),
            });
            let read = read.await;
            read.map_err(|error| EngineError::Files { image, source: error.into() })
        })
        .await
    }

    async fn pause(&self, run: &RunId) -> Result<(), EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { shared.pause(&run).await }).await
    }

    async fn park(&self, run: &RunId) -> Result<(), EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { shared.park(&run).await }).await
    }

    async fn mapped_files(&self, run: &RunId, image: &Path) -> Vec<String> {
        let (run, image) = (run.clone(), image.to_owned());
        let mapped = self.to_its_end(|shared| async move { Ok(shared.mapped_files(&run, image).await) }).await;
        // Where that is not known, all of them are verified.
        mapped.unwrap_or_else(|_| held::all())
    }

    async fn resume(&self, run: &RunId) -> Result<(), EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { shared.resume(&run).await }).await
    }

    async fn stop(&self, run: &RunId) -> Result<(), EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { shared.stop(&run).await }).await
    }

    async fn agent(&self, run: &RunId) -> Result<BoxStream, EngineError> {
        self.shared.agent(run)
    }

    async fn connect(&self, run: &RunId, port: u16) -> Result<BoxStream, EngineError> {
        self.shared.connect(run, port).await
    }

    async fn usage(&self, run: &RunId) -> Result<Usage, EngineError> {
        self.shared.usage(run).await
    }

    async fn mount(&self, run: &RunId, mounts: &[Mount]) -> Result<(), EngineError> {
        let (run, mounts) = (run.clone(), mounts.to_vec());
        self.to_its_end(|shared| async move { shared.mount(&run, &mounts).await }).await
    }

    async fn set_egress(&self, run: &RunId, egress: &Egress) -> Result<(), EngineError> {
        let (run, egress) = (run.clone(), egress.clone());
        self.to_its_end(|shared| async move { shared.set_egress(&run, &egress).await }).await
    }

    async fn set_limits(&self, run: &RunId, resources: &Resources) -> Result<(), EngineError> {
        let (run, resources) = (run.clone(), *resources);
        self.to_its_end(|shared| async move { shared.set_limits(&run, &resources).await }).await
    }

    async fn relieve_memory_pressure(&self, run: &RunId, victim: Option<u32>) -> Result<(), EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { shared.relieve_memory_pressure(&run, victim).await }).await
    }

    async fn inventory(&self) -> Result<Vec<FoundRun>, EngineError> {
        self.to_its_end(|shared| async move { shared.inventory().await }).await
    }

    async fn condition(&self, run: &RunId) -> Result<Option<RunCondition>, EngineError> {
        let run = run.clone();
        self.to_its_end(|shared| async move { Ok(shared.condition(&run).await) }).await
    }

    async fn foreign_runs(&self) -> Result<Vec<ForeignRun>, EngineError> {
        let foreign = self.shared.host.foreign_runs();
        foreign.map_err(|source| unusable("make its directory readable", source))
    }

    async fn sweep(&self, known: &[RunId]) -> Result<Vec<String>, EngineError> {
        let known = known.to_vec();
        self.to_its_end(|shared| async move { shared.sweep(&known).await }).await
    }

    fn notices(&self) -> mpsc::Receiver<Notice> {
        self.shared.notices()
    }

    async fn prepare(&self, image: &Digest, rootfs: &Path) -> Result<(), EngineError> {
        let base = Base { image: image.clone(), disk_bytes: Resources::default().disk_bytes };
        self.shared.warm_pool.want(base, rootfs);
        Ok(())
    }

    async fn deleted_image_bytes(&self) -> u64 {
        let runs = self.shared.runs.all();
        let pids: Vec<i32> = runs.iter().filter_map(|run| Some(run.container()?.processes.sandbox.pid())).collect();
        tokio::task::spawn_blocking(move || held::deleted_bytes(pids.into_iter())).await.unwrap_or(0)
    }

    async fn deleted_on_volumes(&self, run: &RunId) -> Vec<String> {
        let Ok(run) = self.shared.runs.get(run) else { return Vec::new() };
        let Some(container) = run.container() else { return Vec::new() };
        let (home, pid) = (container.home.clone(), container.processes.sandbox.pid());
        blocking(move || slots::deleted_in_guest(&home, pid)).await.unwrap_or_default()
    }

    fn expect(&self, like: &RunSpec, count: usize) -> Expectation {
        match self.shared.expect(like, count) {
            Some(announced) => Expectation::ending_with(move || announced.end()),
            None => Expectation::default(),
        }
    }

    async fn close(&self) {
        self.shared.close_expected().await;
        for WarmContainer { container, .. } in self.shared.warm_pool.close().await {
            if let Err(error) = self.shared.host.destroy(&container.home).await {
                tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot remove a warm container");
            }
        }
        in_place(|| slots::release(&self.shared.host.containers));
        // If runs continue, their groups are below it and it stays.
        if let Err(error) = in_place(|| Cgroup::remove_parent(&self.shared.host.cgroup_prefix)) {
            tracing::debug!(error = %chain(&error), "cannot remove an empty control group");
        }
    }
}
