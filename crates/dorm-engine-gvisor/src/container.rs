//! Creates containers: an empty `runsc` container with its disk, control group, FIFOs and network
//! links, ready to be booted or restored.
//!
//! ```text
//! note ─► lease ┐
//!         disk  ├─► bundle ─► runsc create ─► links ─► (start | restore)
//!         group ┘
//! ```
//! This module does not know what the end of a run means, nor when containers are created ahead of
//! time.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dorm_cgroup::{Cgroup, CgroupError, Device, Entry as GroupEntry, IoLimits, Limits};
use dorm_disk::{Disk, DiskError};
use dorm_engine::{DiskIo, Layer, Lease, Network};
use dorm_guest_ids::GuestIds;
use dorm_steps::AnySteps;
use serde::Deserialize;
use tokio::sync::RwLock;

use crate::builds::Builds;
use crate::control::Control;
use crate::error::{GvisorError, chain};
use crate::links;
use crate::notes::{Duty, FORMAT, Home, LeaseNote, Note, Processes, Reach};
use crate::process::Identity;
use crate::root;
use crate::run::lock;
use crate::said::Said;
use crate::slots;
use crate::stream;

/// How long `runsc create` may take. On an idle host it takes a tenth of a second.
const CREATE_LIMIT: Duration = Duration::from_secs(180);

/// The shared settings and state for creating containers on this host.
pub(crate) struct Host {
    pub(crate) builds: Builds,
    pub(crate) agent: PathBuf,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) containers: PathBuf,
    /// The directory passed as `runsc --root`.
    pub(crate) root: PathBuf,
    /// The directory of formatted, empty disks, by size.
    pub(crate) blanks: PathBuf,
    pub(crate) cgroup_prefix: String,
    /// The host IDs of guests.
    pub(crate) guest_ids: GuestIds,
    /// The ID of the data directory, which every note contains.
    pub(crate) owner: String,
    pub(crate) unlimited_disks: bool,
    pub(crate) io: IoLimits,
    pub(crate) boot: String,
    /// Held for reading while a lease has been requested from the network and is not yet in a note.
    pub(crate) leasing: RwLock<()>,
    /// The homes of all containers that this daemon process has created.
    pub(crate) made: Mutex<HashSet<PathBuf>>,
    pub(crate) steps: AnySteps,
}

/// The requested properties of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// A key that identifies the content of the root file system.
    pub(crate) root: String,
    pub(crate) rootfs: PathBuf,
    pub(crate) layers: Vec<Layer>,
    pub(crate) reach: Reach,
    pub(crate) disk_bytes: u64,
    pub(crate) limits: Limits,
    /// The `runsc` build to run it with; `None` for the newest.
    pub(crate) build: Option<String>,
}

/// The immutable properties of one container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) home: Home,
    pub(crate) processes: Processes,
    pub(crate) control: Control,
    pub(crate) lease: Option<Lease>,
    pub(crate) group: Cgroup,
    /// `None` if its standard error cannot be read.
    pub(crate) said: Option<Said>,
    /// The limits on its disk I/O.
    pub(crate) io: IoLimits,
    pub(crate) steps: AnySteps,
}

/// Limits the I/O of `group` on the disk in `home`, if that disk is a device of its own.
#[allow(clippy::disallowed_methods, reason = "it is called where it may block")]
pub(crate) fn limit_io(group: &Cgroup, home: &Home, limits: &IoLimits) -> Result<(), GvisorError> {
    let disk = Disk::find(&home.disk())?;
    let device = disk.map(|disk| disk.device()).transpose()?.flatten();
    if let Some((major, minor)) = device {
        group.limit_io(Device { major, minor }, limits)?;
    }
    Ok(())
}

impl Container {
    /// Limits the I/O on its disk to `limits`.
    pub(crate) async fn limit_io(&self, limits: IoLimits) {
        let (group, home) = (self.group.clone(), self.home.clone());
        if let Err(error) = blocking(move || limit_io(&group, &home, &limits)).await {
            tracing::warn!(container = self.home.id(), error = %chain(&error), "cannot limit the disk I/O of a sandbox");
        }
    }

    /// Returns what the container has read from and written to its disk, if the host counts it.
    pub(crate) async fn io_usage(&self) -> Option<DiskIo> {
        let (home, limits) = (self.home.disk(), self.io);
        let group = self.group.clone();
        let used = blocking(move || {
            let device = Disk::find(&home)?.map(|disk| disk.device()).transpose()?.flatten();
            let Some((major, minor)) = device else { return Ok(None) };
            Ok(group.io_usage(Device { major, minor })?)
        });
        let used = used.await.ok().flatten()?;
        let limit = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        Some(DiskIo {
            read_bytes: used.read_bytes,
            written_bytes: used.written_bytes,
            read_limit: limit(limits.read_bytes),
            write_limit: limit(limits.write_bytes),
            operations_limit: limit(limits.operations),
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.processes.sandbox.is_alive()
    }

    /// Marks that everything before `step` has been done to the container.
    pub(crate) fn reach(&self, step: &'static str) -> Result<(), GvisorError> {
        Ok(self.steps.reach(step)?)
    }

    /// Returns the last lines of its standard error, joined into one.
    pub(crate) fn last_words(&self) -> String {
        self.said.as_ref().map_or_else(|| "its standard error is not available".to_owned(), Said::last_words)
    }

    /// Returns the error for a container that ended unexpectedly.
    pub(crate) fn died(&self) -> GvisorError {
        GvisorError::Died { said: self.last_words() }
    }

    /// Runs one blocking call on the container's control group.
    pub(crate) async fn group<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Cgroup) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, GvisorError> {
        let group = self.group.clone();
        Ok(tokio::task::spawn_blocking(move || call(&group)).await??)
    }

    /// Returns the bytes in use on its disk; `None` if that is unknown.
    pub(crate) async fn disk_bytes(&self) -> Option<u64> {
        let home = self.home.disk();
        let used = blocking(move || {
            let disk = Disk::find(&home)?.filter(Disk::is_limited);
            Ok(disk
                .map(|disk| disk.usage())
                .transpose()?
                .map(|disk| disk.size_bytes.saturating_sub(disk.available_bytes)))
        });
        used.await.ok().flatten()
    }
}

/// Runs blocking `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GvisorError> + Send + 'static,
) -> Result<T, GvisorError> {
    tokio::task::spawn_blocking(work).await?
}

/// Runs `work`, which may wait for a disk, on this thread and moves the thread's other tasks
/// elsewhere meanwhile. For the few calls between two awaits; longer work belongs into
/// [`blocking`].
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let is_shared = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_shared { tokio::task::block_in_place(work) } else { work() }
}

impl Host {
    /// Marks that everything before `step` has been done to the host.
    pub(crate) fn reach(&self, step: &'static str) -> Result<(), GvisorError> {
        Ok(self.steps.reach(step)?)
    }

    pub(crate) fn group_name(&self, home: &Home) -> String {
        format!("{}/{}", self.cgroup_prefix, home.id())
    }

    /// Creates a container. On failure, removes what was created.
    pub(crate) async fn make(&self, order: &Order, duty: Duty) -> Result<(Container, Note), GvisorError> {
        // The error of runsc does not name a missing part.
        in_place(|| self.check_parts(order))?;
        let home = Home::new(&self.containers)?;
        lock(&self.made).insert(home.directory().to_owned());
        let made = self.try_make(&home, order, duty).await;
        if made.is_err()
            && let Err(error) = self.destroy(&home).await
        {
            tracing::warn!(container = home.id(), error = %chain(&error), "cannot remove a container whose creation failed; the next sweep removes it");
        }
        made
    }

    #[allow(clippy::disallowed_methods, reason = "it is called in place")]
    fn check_parts(&self, order: &Order) -> Result<(), GvisorError> {
        for path in [&order.rootfs, &self.agent].into_iter().chain(order.layers.iter().map(|layer| &layer.directory)) {
            fs::metadata(path).map_err(|source| GvisorError::file("use", path, source))?;
        }
        Ok(())
    }

    async fn try_make(&self, home: &Home, order: &Order, duty: Duty) -> Result<(Container, Note), GvisorError> {
        let directory = home.directory();
        in_place(|| make_directory(directory))?;
        self.reach("gvisor: home made")?;
        let mut note = Note {
            format: FORMAT,
            owner: self.owner.clone(),
            boot: self.boot.clone(),
            image: order.root.clone(),
            reach: order.reach,
            disk_bytes: order.disk_bytes,
            memory_bytes: 0,
            lease: match order.reach {
                Reach::Networked => LeaseNote::Asking,
                Reach::Alone => LeaseNote::None,
            },
            processes: None,
            duty,
            lost_writes: None,
            build: order.build.clone().unwrap_or_else(|| self.builds.newest().to_owned()),
        };
        let asking = self.leasing.read().await;
        in_place(|| home.write(&note))?;
        self.reach("gvisor: container noted")?;
        // Both are awaited even if one fails: the cleanup requires that neither is still at work.
        let (lease, group) = tokio::join!(self.ask_for_lease(order.reach), self.make_disk_and_group(home, order));
        if let Some(lease) = &lease? {
            note.lease = LeaseNote::Held(lease.clone().into());
            in_place(|| home.write(&note))?;
            self.reach("gvisor: lease noted")?;
        }
        drop(asking);
        let (group, entry) = group?;
        let lease = note.lease();
        let rootfs = self.rootfs(home, order).await?;
        in_place(|| slots::make(home))?;
        self.reach("gvisor: slots made")?;
        let said = in_place(|| {
            crate::bundle::write(home, &rootfs, &self.agent, lease.as_ref(), self.guest_ids)?;
            crate::bundle::make_fifos(home)?;
            Said::open(home)
        })?;
        self.reach("gvisor: bundle written")?;
        self.create(home, order, entry, &said).await?;
        self.reach("gvisor: container created")?;
        let processes = in_place(|| self.processes(home, &said))?;
        note.processes = Some(processes.clone());
        in_place(|| home.write(&note))?;
        self.reach("gvisor: processes noted")?;
        let control = Control::new(processes.socket.clone());
        let packets = match &lease {
            Some(lease) => {
                let packets = links::take_over(lease).await?;
                self.reach("gvisor: link taken over")?;
                Some(packets)
            }
            None => None,
        };
        control.links(links::describe(lease.as_ref()), packets).await?;
        self.reach("gvisor: links made")?;
        let steps = self.steps.clone();
        let container =
            Container { home: home.clone(), processes, control, lease, group, said: Some(said), io: self.io, steps };
        Ok((container, note))
    }

    /// Mounts the root file system: the image alone, or the image with the layers above it.
    async fn rootfs(&self, home: &Home, order: &Order) -> Result<PathBuf, GvisorError> {
        let has_point = in_place(|| slots::is_in(&order.rootfs));
        let path = home.root();
        if order.layers.is_empty() && has_point {
            let (mounted, image) = (path.clone(), order.rootfs.clone());
            blocking(move || root::mount_image(&mounted, &image)).await?;
            self.reach("gvisor: image mounted")?;
            return Ok(path);
        }
        let mut parts: Vec<_> = order.layers.iter().map(|layer| layer.directory.clone()).collect();
        parts.push(order.rootfs.clone());
        if !has_point {
            parts.push(slots::points(&self.containers));
        }
        let mounted = path.clone();
        blocking(move || root::mount(&mounted, &parts)).await?;
        self.reach("gvisor: layers mounted")?;
        Ok(path)
    }

    async fn ask_for_lease(&self, reach: Reach) -> Result<Option<Lease>, GvisorError> {
        match reach {
            Reach::Networked => Ok(Some(self.network.lease().await?)),
            Reach::Alone => Ok(None),
        }
    }

    async fn make_disk_and_group(&self, home: &Home, order: &Order) -> Result<(Cgroup, GroupEntry), GvisorError> {
        let (disk, bytes, blanks) = (home.disk(), order.disk_bytes, self.blanks.clone());
        let (name, limits, steps, ids) = (self.group_name(home), order.limits, self.steps.clone(), self.guest_ids);
        let unlimited_disks = self.unlimited_disks;
        blocking(move || {
            make_disk(&disk, ids, bytes, (&blanks, unlimited_disks), &steps)?;
            let group = Cgroup::create(&name, &limits)?;
            steps.reach("gvisor: group made")?;
            let entry = group.entry()?;
            Ok((group, entry))
        })
        .await
    }

    async fn create(&self, home: &Home, order: &Order, entry: GroupEntry, said: &Said) -> Result<(), GvisorError> {
        let (disk, streams) = in_place(|| {
            let [input, output, said] = [home.input(), home.output(), home.said()].map(|path| stream::fifo(&path));
            Ok::<_, GvisorError>((disk_of(home)?, (input?, output?, said?)))
        })?;
        let build = order.build.as_deref();
        let program = self.builds.program(build).ok_or_else(|| GvisorError::NoBuild(build.unwrap_or("").to_owned()))?;
        let mut command = tokio::process::Command::new(&program);
        command.arg0("runsc");
        command.arg(flag("--root", &self.root)).args(["--platform=systrap", "--ignore-cgroups", "--net-disconnect-ok"]);
        command.arg(match order.reach {
            Reach::Networked => "--network=sandbox",
            Reach::Alone => "--network=none",
        });
        command.arg(flag("--overlay2=root:dir", disk.as_path()));
        command.arg("create").arg(flag("--bundle", &home.bundle())).arg(home.id());
        command.stdin(streams.0).stdout(streams.1).stderr(streams.2);
        command.env_clear().current_dir("/");
        enter_before_exec(&mut command, entry);
        let mut child = command.spawn().map_err(|source| GvisorError::file("execute", &program, source))?;
        self.reach("gvisor: runsc create begun")?;
        let waited = tokio::time::timeout(CREATE_LIMIT, child.wait()).await;
        let late = |_| GvisorError::Late { operation: "runsc create", limit: CREATE_LIMIT };
        let status = waited.map_err(late)?.map_err(|source| GvisorError::system("wait for runsc create", source))?;
        if status.success() {
            return Ok(());
        }
        Err(GvisorError::Runsc { operation: "create", status: status.to_string(), said: said.last_words() })
    }

    /// Returns the processes of the container from the state file of `runsc`.
    fn processes(&self, home: &Home, said: &Said) -> Result<Processes, GvisorError> {
        let path = self.state_file(home);
        let state = match read_state(&path)? {
            Some(state) => state,
            None => return Err(GvisorError::file("read", path, io::ErrorKind::NotFound)),
        };
        match Identity::of(state.sandbox.pid) {
            Some(sandbox) => Ok(Processes { sandbox, gofer: Identity::of(state.gofer), socket: state.sandbox.socket }),
            None => Err(GvisorError::Died { said: said.last_words() }),
        }
    }

    /// Returns the processes that may belong to the container, from the state file of `runsc`. Used
    /// when the note does not name them yet.
    pub(crate) fn stray_processes(&self, home: &Home) -> Vec<Identity> {
        let Ok(Some(state)) = read_state(&self.state_file(home)) else { return Vec::new() };
        [state.sandbox.pid, state.gofer].into_iter().filter_map(Identity::of).collect()
    }

    /// Returns the present path of a control socket whose path is in a note. The data directory may
    /// have been moved since the note was written.
    pub(crate) fn socket_now(&self, noted: &Path) -> PathBuf {
        match noted.file_name() {
            Some(name) if noted.is_absolute() => self.root.join(name),
            // A socket in the abstract namespace.
            Some(_) | None => noted.to_owned(),
        }
    }

    fn state_file(&self, home: &Home) -> PathBuf {
        self.root.join(format!("{id}_sandbox:{id}.state", id = home.id()))
    }

    /// Returns the files that `runsc` keeps outside the container's home.
    pub(crate) fn runsc_files(&self, home: &Home) -> [PathBuf; 3] {
        let id = home.id();
        [
            self.state_file(home),
            self.root.join(format!("{id}_sandbox:{id}.lock")),
            self.root.join(format!("runsc-{id}.sock")),
        ]
    }
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn make_directory(path: &Path) -> Result<(), GvisorError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| GvisorError::file("create", path, source))
}

/// Returns the path of the disk of a container that is being created.
fn disk_of(home: &Home) -> Result<PathBuf, GvisorError> {
    let disk = Disk::find(&home.disk())?.map(|disk| disk.path());
    disk.ok_or_else(|| GvisorError::file("find the disk in", home.disk(), io::ErrorKind::NotFound))
}

fn make_disk(
    directory: &Path,
    ids: GuestIds,
    bytes: u64,
    (blanks, unlimited_disks): (&Path, bool),
    steps: &AnySteps,
) -> Result<(), GvisorError> {
    match Disk::create_with(directory, ids, bytes, blanks, steps) {
        Err(error @ DiskError::NoLoop { .. }) if unlimited_disks => {
            tracing::warn!(error = %chain(&error), "the disk of a sandbox has no size limit on this host");
            Disk::unlimited(directory, ids)?;
        }
        made => _ = made?,
    }
    Ok(())
}

fn flag(name: &str, value: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(name);
    flag.push("=");
    flag.push(value);
    flag
}

#[allow(unsafe_code)]
fn enter_before_exec(command: &mut tokio::process::Command, entry: GroupEntry) {
    let is_spared = crate::process::is_spared_from_oom();
    // SAFETY: the closure runs between fork and exec; it only opens a file by a constant path and
    // writes to descriptors.
    unsafe {
        command.pre_exec(move || {
            entry.enter()?;
            if is_spared { crate::process::be_an_ordinary_oom_victim() } else { Ok(()) }
        });
    }
}

#[derive(Deserialize)]
struct State {
    sandbox: SandboxState,
    #[serde(rename = "goferPid")]
    gofer: i32,
}

#[derive(Deserialize)]
struct SandboxState {
    pid: i32,
    #[serde(rename = "controlSocketPath")]
    socket: PathBuf,
}

#[allow(clippy::disallowed_methods, reason = "it is called in place or on a thread that may block")]
fn read_state(path: &Path) -> Result<Option<State>, GvisorError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| GvisorError::Text { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(GvisorError::file("read", path, source)),
    }
}
