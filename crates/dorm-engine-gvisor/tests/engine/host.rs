//! A place on this host for one engine, which is removed without a trace at the end, even if the
//! test fails.

use std::fs;
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dorm_agent_client::{Agent, Identity, ProcessSpec};
use dorm_cgroup::Cgroup;
use dorm_disk::Disk;
use dorm_engine::{Engine, EngineError, Lease, Network, RunSpec};
use dorm_engine_gvisor::{Config, GvisorEngine, probe};
use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, Egress, Resources, RunId, SandboxId};

use crate::network::NoNetwork;

const GUEST_ID_BASE: u32 = GuestIds::DEFAULT.base();
/// How long an operation may take on a very busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The place of one engine.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    prefix: String,
    pub(crate) owner: String,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) image: Digest,
}

impl Place {
    /// Makes a place without network; `None` where gVisor cannot be used.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Arc::new(NoNetwork))
    }

    pub(crate) fn with(network: Arc<dyn Network>) -> Option<Self> {
        if let Err(error) = probe(&runsc()).usable() {
            dorm_skip::skip(error.chain());
            return None;
        }
        if let Err(error) = Disk::probe() {
            dorm_skip::skip(error);
            return None;
        }
        let directory = tempfile::Builder::new().prefix("dorm-gvisor-").tempdir_in("/var/tmp").unwrap();
        let random = directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches("dorm-gvisor-");
        let prefix = format!("dormtest-{random}");
        make_rootfs(&directory.path().join("rootfs"));
        Some(Self { prefix, owner: "own".to_owned(), network, image: "a".repeat(64).parse().unwrap(), directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path().join("rootfs")
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Opens the engine with `containers` warm containers of each kind.
    pub(crate) async fn open(&self, containers: usize) -> Arc<GvisorEngine> {
        self.try_open(containers).await.unwrap()
    }

    pub(crate) async fn try_open(&self, containers: usize) -> Result<Arc<GvisorEngine>, EngineError> {
        GvisorEngine::open(self.config(containers)).await
    }

    /// Opens the engine with the first of these programs that can be used.
    pub(crate) async fn try_open_with(&self, runsc: Vec<PathBuf>) -> Result<Arc<GvisorEngine>, EngineError> {
        GvisorEngine::open(Config { runsc, ..self.config(0) }).await
    }

    /// Opens the engine of a daemon that has another agent.
    pub(crate) async fn open_with_agent(&self, agent: PathBuf) -> Arc<GvisorEngine> {
        GvisorEngine::open(Config { agent, ..self.config(1) }).await.unwrap()
    }

    /// Opens the stock engine in another directory of this place.
    pub(crate) async fn try_open_in(&self, directory: &str) -> Result<Arc<GvisorEngine>, EngineError> {
        let directory = self.path().join(directory);
        GvisorEngine::open(Config { directory, runsc: vec![stock_runsc()], ..self.config(0) }).await
    }

    fn config(&self, containers: usize) -> Config {
        Config {
            directory: self.path().join("engine"),
            runsc: vec![runsc()],
            runsc_also: Vec::new(),
            agent: agent(),
            trial: dorm_agent_binary::TRIAL,
            network: self.network.clone(),
            warm_containers: containers,
            cgroup_prefix: self.prefix.clone(),
            guest_ids: GuestIds::DEFAULT,
            files: dorm_memory_image::FilesLimits::default(),
            io: dorm_cgroup::IoLimits::default(),
            unlimited_disks: false,
            owner: self.owner.clone(),
            steps: dorm_steps::pass(),
            reader: None,
        }
    }

    /// A run of a new sandbox without network.
    pub(crate) fn spec(&self) -> RunSpec {
        let mut bytes = [0_u8; 20];
        fs::File::open("/dev/urandom").and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes)).unwrap();
        RunSpec {
            run: RunId { sandbox: SandboxId::from_random(bytes), generation: 1 },
            image: self.image.clone(),
            rootfs: self.rootfs(),
            layers: Vec::new(),
            resources: Resources { disk_bytes: 64 << 20, memory_bytes: 256 << 20, ..Resources::default() },
            egress: Egress::None,
            mounts: Vec::new(),
            build: None,
        }
    }

    /// Makes an empty directory for an image.
    pub(crate) fn image_directory(&self, name: &str) -> PathBuf {
        let path = self.path().join("images").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Everything of this place that is left on the host: mounts, loop devices, control groups,
    /// processes, containers. Waits for a loop device whose file is already deleted: the process of
    /// some other sandbox that is just being created has a copy of our mounts for a moment.
    pub(crate) fn left(&self) -> Vec<String> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let left = self.look();
            let passes = |line: &String| line.starts_with("loop device") && line.ends_with("(deleted)");
            if left.is_empty() || !left.iter().all(passes) || std::time::Instant::now() > end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn look(&self) -> Vec<String> {
        let top = self.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // The mount point of volumes for all containers exists as long as an engine is open.
        let slots = format!(" {top}/engine/slots ");
        let left = mounts.lines().filter(|line| line.contains(top) && !line.contains(&slots));
        let mut left: Vec<String> = left.map(str::to_owned).collect();
        for device in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            if backing.contains(top) {
                left.push(format!("loop device of {}", backing.trim()));
            }
        }
        left.extend(Cgroup::list(&self.prefix).unwrap().into_iter().map(|name| format!("control group {name}")));
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let group = fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains(top) || group.contains(&self.prefix) {
                left.push(format!("process {}", process.file_name().display()));
            }
        }
        for directory in ["engine/containers", "engine/runsc"] {
            let entries = fs::read_dir(self.path().join(directory)).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in Cgroup::list(&self.prefix).unwrap_or_default() {
            if let Ok(Some(group)) = Cgroup::find(&name) {
                let _ = group.kill_all();
                let _ = group.remove();
            }
        }
        let _ = Cgroup::remove_parent(&self.prefix);
        for container in fs::read_dir(self.path().join("engine/containers")).into_iter().flatten().flatten() {
            let _ = Disk::remove_in(&container.path().join("disk"));
        }
        for root in fs::read_dir(self.path().join("engine/roots")).into_iter().flatten().flatten() {
            let _ = rustix::mount::unmount(root.path(), rustix::mount::UnmountFlags::DETACH);
        }
        let _ = rustix::mount::unmount(self.path().join("engine/slots"), rustix::mount::UnmountFlags::DETACH);
    }
}

pub(crate) fn runsc() -> PathBuf {
    std::env::var_os("DORM_TEST_RUNSC").map_or_else(|| PathBuf::from("/usr/bin/runsc"), PathBuf::from)
}

/// The `runsc` of the distribution, which reads all memory of an image.
pub(crate) fn stock_runsc() -> PathBuf {
    std::env::var_os("DORM_TEST_STOCK_RUNSC").map_or_else(|| PathBuf::from("/usr/bin/runsc"), PathBuf::from)
}

/// The agent's binary, installed once for all tests of this process.
pub(crate) fn agent() -> PathBuf {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if let Some(agent) = std::env::var_os("DORM_TEST_AGENT") {
        return agent.into();
    }
    AGENT.get_or_init(|| dorm_agent_binary::install(directory).unwrap()).clone()
}

/// The base image that `xtask setup` makes, if it exists.
pub(crate) fn base_image() -> Option<(Digest, PathBuf)> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse/images");
    let images = std::env::var_os("DORM_TEST_IMAGES").map_or(workspace, PathBuf::from);
    let digest = fs::read_to_string(images.join("tags/base")).ok()?.trim().to_owned();
    let rootfs = images.join(&digest).join("rootfs");
    let digest = digest.parse().ok()?;
    rootfs.is_dir().then_some((digest, rootfs))
}

/// Makes a small root file system from this host's own shell and a few programs, with shifted
/// ownership.
fn make_rootfs(top: &Path) {
    for name in ["bin", "dev", "etc/dormouse/on-resume.d", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib"] {
        fs::create_dir_all(top.join(name)).unwrap();
    }
    fs::write(top.join("dorm-agent"), "").unwrap();
    fs::write(top.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    fs::write(top.join("tmp/.on-disk"), "").unwrap();
    for program in ["sh", "cat", "sleep", "dd", "head", "tail", "true"] {
        let from = ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(program)).find(|path| path.exists());
        let from = from.unwrap_or_else(|| panic!("this host has no {program}"));
        fs::copy(&from, top.join("bin").join(program)).unwrap();
        for library in libraries(&from) {
            let to = top.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
    }
    let _ = symlink("../bin/sh", top.join("usr/bin/sh"));
    shift(top);
}

fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

fn shift(path: &Path) {
    std::os::unix::fs::lchown(path, Some(GUEST_ID_BASE), Some(GUEST_ID_BASE)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            shift(&entry.unwrap().path());
        }
    } else if !path.is_symlink() {
        chown(path, Some(GUEST_ID_BASE), Some(GUEST_ID_BASE)).unwrap();
    }
}

/// A connection to the agent of `run`.
pub(crate) async fn agent_of(engine: &GvisorEngine, run: &RunId) -> Agent {
    let stream = engine.agent(run).await.unwrap();
    tokio::time::timeout(PATIENCE, Agent::connect(stream, run.generation)).await.expect("in time").unwrap()
}

/// Gives the sandbox a generation; it is kept in the agent's memory.
pub(crate) async fn mark(agent: &Agent, generation: u64) {
    let identity = Identity {
        generation,
        hostname: "marked".to_owned(),
        unix_time_us: 1_800_000_000_000_000,
        entropy: [7; 32],
        variables: Vec::new(),
    };
    agent.resumed(&identity).await.unwrap();
}

/// Runs a shell script inside to its end, and returns its exit code.
pub(crate) async fn shell(agent: &Agent, script: &str) -> i32 {
    let started = begin_shell(agent, script).await;
    let status = tokio::time::timeout(PATIENCE, agent.wait(started)).await.expect("in time").unwrap();
    status.shell_code()
}

/// Starts a shell script inside and returns its handle.
pub(crate) async fn begin_shell(agent: &Agent, script: &str) -> u64 {
    let arguments = ["/bin/sh", "-c", script].map(|word| dorm_agent_client::GuestString::new(word).unwrap());
    agent.start(&ProcessSpec::new(arguments.into())).await.unwrap().process
}

/// Stops every run of the engine.
pub(crate) async fn stop_all(engine: &GvisorEngine) {
    for found in engine.inventory().await.unwrap() {
        engine.stop(&found.run).await.unwrap();
    }
}

/// Waits until `condition` holds.
pub(crate) async fn wait_for<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A lease with the usual addresses, for the test networks.
pub(crate) fn lease_like(id: u16, namespace: PathBuf) -> Lease {
    Lease {
        id: dorm_engine::LeaseId(id),
        namespace,
        interface: "eth0".to_owned(),
        mac: [2, 0, 0, 0, 1, 2],
        address: [10, 0, 0, 2].into(),
        prefix: 30,
        gateway: [10, 0, 0, 1].into(),
    }
}
