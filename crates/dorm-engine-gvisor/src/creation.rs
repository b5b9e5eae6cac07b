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

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dorm_cgroup::{Cgroup, Entry as GroupEntry};
use dorm_disk::{Disk, DiskError};
use dorm_engine::Lease;
use dorm_guest_ids::GuestIds;
use dorm_steps::AnySteps;

use crate::blocking::{blocking, in_place};
use crate::bundle;
use crate::container::{Container, Order};
use crate::control::Control;
use crate::error::{GvisorError, chain};
use crate::host::Host;
use crate::links;
use crate::lock::lock;
use crate::notes::{Duty, FORMAT, Home, LeaseNote, Note, Reach};
use crate::root;
use crate::said::Said;
use crate::slots;
use crate::stream;

/// How long `runsc create` may take. On an idle host it takes a tenth of a second.
const CREATE_LIMIT: Duration = Duration::from_secs(180);

impl Host {
    /// Creates a container. On failure, removes what was created.
    pub(crate) async fn make(&self, order: &Order, duty: Duty) -> Result<(Container, Note), GvisorError> {
        // The error of runsc does not name a missing part.
        let agent = in_place(|| self.check_parts(order))?;
        let home = Home::new(&self.containers)?;
        lock(&self.made).insert(home.directory().to_owned());
        let made = self.try_make(&home, order, &agent, duty).await;
        if made.is_err()
            && let Err(error) = self.destroy(&home).await
        {
            tracing::warn!(container = home.id(), error = %chain(&error), "cannot remove a container whose creation failed; the next sweep removes it");
        }
        made
    }

    /// Returns the path of the agent, if it and all other parts are there.
    #[allow(clippy::disallowed_methods, reason = "it is called in place")]
    fn check_parts(&self, order: &Order) -> Result<PathBuf, GvisorError> {
        let agent = self.agents.path(order.agent.as_deref())?;
        for path in [&order.rootfs, &agent].into_iter().chain(order.layers.iter().map(|layer| &layer.directory)) {
            fs::metadata(path).map_err(|source| GvisorError::file("use", path, source))?;
        }
        Ok(agent)
    }

    async fn try_make(
        &self,
        home: &Home,
        order: &Order,
        agent: &Path,
        duty: Duty,
    ) -> Result<(Container, Note), GvisorError> {
        in_place(|| make_directory(home.directory()))?;
        self.reach("gvisor: home made")?;
        let mut note = Note {
            format: FORMAT,
            owner: self.owner.clone(),
            boot: self.boot.clone(),
            image: order.root.clone(),
            reach: order.reach(),
            disk_bytes: order.disk_bytes,
            memory_bytes: 0,
            lease: match order.reach() {
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
        let (lease, group) = tokio::join!(self.ask_for_lease(order), self.make_disk_and_group(home, order));
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
            bundle::write(home, &rootfs, agent, lease.as_ref(), self.guest_ids)?;
            bundle::make_fifos(home)?;
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

    async fn ask_for_lease(&self, order: &Order) -> Result<Option<Lease>, GvisorError> {
        match order.reach() {
            Reach::Networked => Ok(Some(self.network.lease(&order.egress).await?)),
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
        command.arg(match order.reach() {
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
