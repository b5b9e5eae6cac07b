//! Removes a container, complete or not.
//!
//! This process, or a daemon that died in the middle, may already have done any of the steps; each
//! succeeds if there is nothing to do. The note is removed last, so that remains are always known.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use dorm_cgroup::{Cgroup, Device, unlimit_device};
use dorm_disk::Disk;
use dorm_engine::LeaseId;

use crate::blocking::{blocking, in_place};
use crate::error::GvisorError;
use crate::host::Host;
use crate::lock::lock;
use crate::notes::{Home, LeaseNote, Note, Processes};
use crate::process::{self, Identity};
use crate::root;
use crate::slots;

/// How long killed processes may take to exit.
const DEATH_LIMIT: Duration = Duration::from_secs(60);

impl Host {
    /// Removes the container in `home` with everything it has: processes, lease, disk, control
    /// group and files.
    pub(crate) async fn destroy(&self, home: &Home) -> Result<(), GvisorError> {
        // The note is unreadable if the host crashed before it was durable, or if it is damaged.
        // The caller has checked whether the container has processes.
        let note = in_place(|| home.read()).unwrap_or_default();
        let processes = note.as_ref().filter(|note| note.boot == self.boot).and_then(|note| note.processes.as_ref());
        self.end_processes(home, processes).await?;
        let (disk, released) = tokio::join!(self.remove_files(home), self.release(note.as_ref()));
        released?;
        disk?;
        lock(&self.made).remove(home.directory());
        self.reach("gvisor: container emptied")?;
        let (home, steps) = (home.clone(), self.steps.clone());
        blocking(move || {
            remove_file(&home.copy())?;
            remove_file(&home.note())?;
            steps.reach("gvisor: note removed")?;
            match fs::remove_dir_all(home.directory()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(GvisorError::file("remove", home.directory(), error))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// Kills all processes of the container and waits until they have exited.
    pub(crate) async fn end_processes(&self, home: &Home, processes: Option<&Processes>) -> Result<(), GvisorError> {
        let name = self.group_name(home);
        let mut known: Vec<Identity> = match processes {
            Some(processes) => processes.gofer.into_iter().chain([processes.sandbox]).collect(),
            None => in_place(|| self.stray_processes(home)),
        };
        known.dedup();
        let (steps, ids) = (self.steps.clone(), self.guest_ids);
        blocking(move || {
            let group = Cgroup::find(&name)?;
            if let Some(group) = &group {
                group.kill_all()?;
            }
            for process in &known {
                process.kill().map_err(|source| GvisorError::system("kill a sandbox's process", source))?;
            }
            steps.reach("gvisor: processes killed")?;
            let late = || GvisorError::Late { operation: "ending the sandbox's processes", limit: DEATH_LIMIT };
            for process in known {
                if !process.wait(DEATH_LIMIT) {
                    return Err(late());
                }
            }
            let end = Instant::now() + DEATH_LIMIT;
            if let Some(group) = &group {
                while !group.pids()?.is_empty() {
                    if Instant::now() > end {
                        return Err(late());
                    }
                    process::reap_guests(ids);
                    std::thread::sleep(Duration::from_millis(1));
                }
                process::reap_guests(ids);
                group.remove()?;
                steps.reach("gvisor: group removed")?;
            }
            Ok(())
        })
        .await
    }

    /// Removes the files of another data directory's container that were copied into this one. Host
    /// resources that the note names are left alone.
    pub(crate) async fn remove_copied(&self, home: &Home) -> Result<(), GvisorError> {
        self.remove_files(home).await?;
        let home = home.clone();
        blocking(move || {
            remove_file(&home.note())?;
            let removed = fs::remove_dir_all(home.directory());
            removed.map_err(|error| GvisorError::file("remove", home.directory(), error))
        })
        .await
    }

    async fn remove_files(&self, home: &Home) -> Result<(), GvisorError> {
        let files = self.runsc_files(home);
        let (home, steps) = (home.clone(), self.steps.clone());
        blocking(move || {
            slots::remove(&home)?;
            root::remove(&home.root())?;
            release_device(&home)?;
            Disk::remove_with(&home.disk(), &steps)?;
            for path in [home.input(), home.output(), home.bundle().join("config.json")] {
                remove_file(&path)?;
            }
            files.iter().try_for_each(|path| remove_file(path))
        })
        .await
    }

    async fn release(&self, note: Option<&Note>) -> Result<(), GvisorError> {
        if note.is_some_and(|note| matches!(note.lease, LeaseNote::Asking)) {
            return self.release_unnamed_leases().await;
        }
        match note.and_then(Note::lease) {
            Some(lease) => Ok(self.network.release(lease.id).await?),
            None => Ok(()),
        }
    }

    /// Releases the leases that no note names. Called only for a container whose daemon died while
    /// it requested a lease; no other engine uses this engine's network.
    async fn release_unnamed_leases(&self) -> Result<(), GvisorError> {
        let _nobody_asks = self.leasing.write().await;
        let homes = in_place(|| Home::all(&self.containers))?;
        if homes.iter().any(|home| in_place(|| home.read()).is_err() && self.has_processes(home)) {
            tracing::warn!("cannot read the note of a live container; keeping network leases that no note names");
            return Ok(());
        }
        let named = in_place(|| self.own_notes())?.into_iter().filter_map(|(_, note)| note.lease());
        let named: HashSet<LeaseId> = named.map(|lease| lease.id).collect();
        for lease in self.network.leases().await? {
            if !named.contains(&lease.id) {
                tracing::info!(lease = lease.id.0, "releasing a network lease that no container has");
                self.network.release(lease.id).await?;
            }
        }
        Ok(())
    }
}

/// Removes the limits of a disk's device, before another sandbox uses the device.
fn release_device(home: &Home) -> Result<(), GvisorError> {
    let device = Disk::find(&home.disk())?.map(|disk| disk.device()).transpose()?.flatten();
    if let Some((major, minor)) = device {
        unlimit_device(Device { major, minor })?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), GvisorError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GvisorError::file("remove", path, error)),
        _ => Ok(()),
    }
}
