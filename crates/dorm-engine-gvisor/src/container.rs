//! One container: its immutable properties, and what can be asked of it.
//!
//! This module does not know how containers are created or removed.

use std::path::{Path, PathBuf};

use dorm_cgroup::{Cgroup, CgroupError, Device, IoLimits, Limits};
use dorm_disk::Disk;
use dorm_engine::{DiskIo, Layer, Lease};
use dorm_lifecycle::Egress;
use dorm_steps::AnySteps;

use crate::blocking::{blocking, in_place};
use crate::control::Control;
use crate::error::{GvisorError, chain};
use crate::notes::{Home, Processes, Reach};
use crate::said::Said;

/// The requested properties of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// A key that identifies the content of the root file system.
    pub(crate) root: String,
    pub(crate) rootfs: PathBuf,
    pub(crate) layers: Vec<Layer>,
    /// The egress that its network has from the beginning.
    pub(crate) egress: Egress,
    pub(crate) disk_bytes: u64,
    pub(crate) limits: Limits,
    /// The `runsc` build to run it with; `None` for the newest.
    pub(crate) build: Option<String>,
    /// The agent to run in it; `None` for the newest.
    pub(crate) agent: Option<String>,
}

impl Order {
    pub(crate) fn reach(&self) -> Reach {
        if self.egress.has_device() { Reach::Networked } else { Reach::Alone }
    }

    /// Returns whether the root file system and the layers exist. They may be deleted before a
    /// container is created ahead of its run, which is then not needed.
    pub(crate) fn is_there(&self) -> bool {
        let layers = self.layers.iter().map(|layer| &layer.directory);
        in_place(|| std::iter::once(&self.rootfs).chain(layers).all(|directory| is_directory(directory)))
    }
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
pub(crate) fn is_directory(path: &Path) -> bool {
    path.is_dir()
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
