//! One control group: created, limited, frozen, killed, removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::layout::{Layout, Place};
use crate::values::{GroupUsage, Limits, MemoryUse, Motion};
use crate::{file, v1, v2};

/// How long [`Cgroup::freeze`] and [`Cgroup::thaw`] wait for the last process.
const MOTION_LIMIT: Duration = Duration::from_secs(10);
/// How long [`Cgroup::remove`] waits for the last process to be gone.
const REMOVE_LIMIT: Duration = Duration::from_secs(30);

/// A control group. The value is only a name: dropping it changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup {
    name: String,
    places: Vec<Place>,
}

impl Cgroup {
    /// Creates the group `name` with these limits. Parent groups are created as needed and kept. An
    /// empty group of the same name, left by a crash, is replaced.
    ///
    /// # Errors
    /// [`CgroupError::Occupied`] if the group contains processes. On failure, what was created is
    /// removed.
    pub fn create(name: &str, limits: &Limits) -> Result<Self, CgroupError> {
        Self::create_in(&Layout::of_this_host()?, name, limits)
    }

    pub(crate) fn create_in(layout: &Layout, name: &str, limits: &Limits) -> Result<Self, CgroupError> {
        check_name(name)?;
        for controller in Controller::ALL {
            if controller.is_needed() && layout.version(controller).is_none() {
                return Err(CgroupError::Missing { controller });
            }
        }
        let mut tries = 0;
        loop {
            match Self::try_create(layout, name, limits) {
                // Another process has removed the empty parent in between.
                Err(error) if error.is_gone() && tries < 8 => tries += 1,
                other => return other,
            }
        }
    }

    fn try_create(layout: &Layout, name: &str, limits: &Limits) -> Result<Self, CgroupError> {
        let unified: Vec<&Place> = layout.bases.iter().filter(|place| place.version == Version::V2).collect();
        if let Some(first) = unified.first() {
            let controllers: Vec<Controller> = unified.iter().map(|place| place.controller).collect();
            v2::hand_down(&first.dir, name, &controllers)?;
        }
        let group = Self::named(layout, name);
        let made = group.dirs().into_iter().try_for_each(|dir| group.make_empty(dir));
        made.and_then(|()| group.set_limits(limits)).inspect_err(|error| group.discard(error))?;
        Ok(group)
    }

    /// Creates one directory of the group. An existing empty one is replaced, since its counters
    /// and settings belong to another run.
    fn make_empty(&self, dir: &Path) -> Result<(), CgroupError> {
        if !remove_dir(dir)? && !file::pids(dir)?.is_empty() {
            return Err(CgroupError::Occupied { name: self.name.clone() });
        }
        fs::create_dir_all(dir).map_err(|source| CgroupError::file("create", dir.to_owned(), source))
    }

    /// Removes a group whose creation failed with `cause`. A directory that contains processes
    /// belongs to another group and stays.
    fn discard(&self, cause: &CgroupError) {
        if matches!(cause, CgroupError::Occupied { .. }) {
            return;
        }
        for dir in self.dirs() {
            if let Err(error) = remove_dir(dir) {
                tracing::warn!(group = %self.name, %error, "cannot remove a control group after its creation failed");
            }
        }
    }

    /// Returns the group `name` if any hierarchy contains it.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or the name is invalid.
    pub fn find(name: &str) -> Result<Option<Self>, CgroupError> {
        Self::find_in(&Layout::of_this_host()?, name)
    }

    pub(crate) fn find_in(layout: &Layout, name: &str) -> Result<Option<Self>, CgroupError> {
        check_name(name)?;
        let group = Self::named(layout, name);
        let there = group.dirs().iter().any(|dir| dir.exists());
        Ok(there.then_some(group))
    }

    /// Returns the sorted names of the groups directly below `parent` (for `dormouse-ab12`:
    /// `dormouse-ab12/ID-1`, …).
    ///
    /// # Errors
    /// When a directory cannot be read. A missing parent has no groups.
    pub fn list(parent: &str) -> Result<Vec<String>, CgroupError> {
        check_name(parent)?;
        let mut names = Vec::new();
        for dir in Self::named(&Layout::of_this_host()?, parent).dirs() {
            let entries = match fs::read_dir(dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(CgroupError::file("read", dir.clone(), source)),
            };
            let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            names.extend(dirs.filter_map(|entry| Some(format!("{parent}/{}", entry.file_name().to_str()?))));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    pub(crate) fn named(layout: &Layout, name: &str) -> Self {
        let places = layout.bases.iter().map(|base| Place { dir: base.dir.join(name), ..base.clone() }).collect();
        Self { name: name.to_owned(), places }
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn place(&self, controller: Controller) -> Result<&Place, CgroupError> {
        let place = self.places.iter().find(|place| place.controller == controller);
        place.ok_or(CgroupError::Missing { controller })
    }

    /// Returns each directory of the group once. One hierarchy often serves several controllers.
    fn dirs(&self) -> Vec<&PathBuf> {
        let mut dirs: Vec<&PathBuf> = Vec::new();
        for place in &self.places {
            if !dirs.contains(&&place.dir) {
                dirs.push(&place.dir);
            }
        }
        dirs
    }

    /// Changes the limits of the group, which may contain running processes. Limits that the host
    /// does not support (see [`crate::Support`]) are skipped.
    ///
    /// # Errors
    /// When memory cannot be limited below what is in use. Limits are set in the order memory,
    /// threads, CPU; those before the failing one are then in effect.
    pub fn set_limits(&self, limits: &Limits) -> Result<(), CgroupError> {
        let memory = self.place(Controller::Memory)?;
        match memory.version {
            Version::V1 => v1::limit_memory(&memory.dir, limits.memory_bytes)?,
            Version::V2 => v2::limit_memory(&memory.dir, limits.memory_bytes)?,
        }
        if let Ok(pids) = self.place(Controller::Pids) {
            file::write_if_there(&pids.dir, "pids.max", &limits.threads.to_string())?;
        }
        if let Ok(cpu) = self.place(Controller::Cpu) {
            let limited = match cpu.version {
                Version::V1 => v1::limit_cpu(&cpu.dir, limits.cpu_millis, limits.weight_millis()),
                Version::V2 => v2::limit_cpu(&cpu.dir, limits.cpu_millis, limits.weight_millis()),
            };
            match limited {
                // The kernel offers the controller but did not delegate it.
                Err(error) if error.is_gone() && cpu.dir.exists() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Sets only the hard memory limit, in bytes.
    ///
    /// # Errors
    /// When the group does not exist, or uses more memory than the kernel can reclaim.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), CgroupError> {
        let place = self.place(Controller::Memory)?;
        match place.version {
            Version::V1 => v1::limit_memory(&place.dir, bytes),
            Version::V2 => v2::limit_memory(&place.dir, bytes),
        }
    }

    /// Returns the hard memory limit in bytes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn memory_limit(&self) -> Result<u64, CgroupError> {
        let place = self.place(Controller::Memory)?;
        match place.version {
            Version::V1 => v1::memory_limit(&place.dir),
            Version::V2 => v2::memory_limit(&place.dir),
        }
    }

    /// Moves a process with all its threads into the group. Its present memory stays charged to its
    /// old group.
    ///
    /// # Errors
    /// When the process or the group does not exist.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        self.dirs().into_iter().try_for_each(|dir| file::write(dir, "cgroup.procs", &pid.to_string()))
    }

    /// Opens the group so that a child process can enter it before it executes its program.
    ///
    /// # Errors
    /// When the group does not exist.
    pub fn entry(&self) -> Result<Entry, CgroupError> {
        let open = |dir: &PathBuf| {
            let path = dir.join("cgroup.procs");
            let file = fs::OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(|source| CgroupError::file("open", path, source))
        };
        Ok(Entry { doors: self.dirs().into_iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Freezes every process and waits for that, at most 10 s. Under version 1, frozen processes
    /// cannot be killed. Freezing a frozen group has no effect.
    ///
    /// # Errors
    /// [`CgroupError::Late`]; the group is then thawed again.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let frozen = self.bring_to(Motion::Frozen, "freeze");
        if frozen.is_err() {
            // A sandbox that is only partially frozen is worse than one that is not frozen.
            let place = self.place(Controller::Freezer)?;
            ask_freezer(place, Motion::Moving)?;
        }
        frozen
    }

    /// Thaws every process and waits for that, at most 10 s. Thawing a group that is not frozen has
    /// no effect.
    ///
    /// # Errors
    /// [`CgroupError::Late`].
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.bring_to(Motion::Moving, "thaw")
    }

    fn bring_to(&self, wanted: Motion, operation: &'static str) -> Result<(), CgroupError> {
        let place = self.place(Controller::Freezer)?;
        ask_freezer(place, wanted)?;
        let mut looks = 0_u32;
        let done = file::wait_until(MOTION_LIMIT, || {
            looks += 1;
            // Version 1 can miss a process that forks at this moment, and only checks again on the
            // next request.
            if place.version == Version::V1 && looks.is_multiple_of(50) {
                ask_freezer(place, wanted)?;
            }
            Ok(motion(place)? == Some(wanted))
        })?;
        if done { Ok(()) } else { Err(CgroupError::Late { operation, name: self.name.clone(), limit: MOTION_LIMIT }) }
    }

    /// Returns whether every process is frozen.
    ///
    /// # Errors
    /// When the group does not exist.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        Ok(motion(self.place(Controller::Freezer)?)? == Some(Motion::Frozen))
    }

    /// Returns the sorted processes of the group, including one that entered only some of the
    /// hierarchies before a crash.
    ///
    /// # Errors
    /// When an existing directory cannot be read. A group that does not exist has no processes.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut all = Vec::new();
        for dir in self.dirs() {
            match file::pids(dir) {
                Ok(pids) => all.extend(pids),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Returns its current resource usage.
    ///
    /// # Errors
    /// When the group does not exist.
    pub fn usage(&self) -> Result<GroupUsage, CgroupError> {
        let cpu_micros = match self.place(Controller::CpuAccounting) {
            Ok(Place { version: Version::V1, dir, .. }) => Some(v1::cpu_micros(dir)?),
            Ok(Place { version: Version::V2, dir, .. }) => Some(v2::cpu_micros(dir)?),
            Err(_) => None,
        };
        let memory = memory(self.place(Controller::Memory)?)?;
        Ok(GroupUsage {
            cpu_micros,
            memory_bytes: memory.working_set(),
            cache_bytes: memory.cache,
            processes: self.pids()?.len() as u64,
        })
    }

    /// Returns how many of its processes the kernel has killed because memory ran out.
    ///
    /// # Errors
    /// When the group does not exist.
    pub fn oom_kills(&self) -> Result<u64, CgroupError> {
        let place = self.place(Controller::Memory)?;
        match place.version {
            Version::V1 => v1::oom_kills(&place.dir),
            Version::V2 => v2::oom_kills(&place.dir),
        }
    }

    /// Kills every process in the group, frozen or not, and leaves the group thawed. The processes
    /// exist until their parents have reaped them; [`Cgroup::remove`] waits for that. Killing an
    /// empty or missing group succeeds.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill_all(&self) -> Result<(), CgroupError> {
        let place = self.place(Controller::Freezer)?;
        if !place.dir.exists() {
            return self.signal_all();
        }
        match self.kill_in(place) {
            // It was removed meanwhile, when its processes had ended.
            Err(error) if error.is_gone() && !place.dir.exists() => self.signal_all(),
            killed => killed,
        }
    }

    fn kill_in(&self, place: &Place) -> Result<(), CgroupError> {
        if place.version == Version::V2 && v2::kill(&place.dir)? {
            // Processes that have entered only another hierarchy.
            return self.signal_all();
        }
        // Frozen processes cannot fork away from the signal. If they cannot be frozen in time, they
        // are killed anyway, and the second round catches what forked.
        let frozen = self.freeze();
        self.signal_all()?;
        ask_freezer(place, Motion::Moving)?;
        if frozen.is_err() {
            self.signal_all()?;
        }
        Ok(())
    }

    fn signal_all(&self) -> Result<(), CgroupError> {
        for pid in self.pids()? {
            let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { continue };
            if pid == rustix::process::getpid() {
                continue;
            }
            match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    let path = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
                    return Err(CgroupError::file("kill the process", path, error.into()));
                }
            }
        }
        Ok(())
    }

    /// Removes the group and waits for its last process, at most 30 s. Removing a missing group
    /// succeeds.
    ///
    /// # Errors
    /// [`CgroupError::Late`] if processes remain.
    pub fn remove(&self) -> Result<(), CgroupError> {
        let gone = file::wait_until(REMOVE_LIMIT, || {
            let mut all = true;
            for dir in self.dirs() {
                all &= remove_dir(dir)?;
            }
            Ok(all)
        })?;
        let late = || CgroupError::Late { operation: "remove", name: self.name.clone(), limit: REMOVE_LIMIT };
        if gone { Ok(()) } else { Err(late()) }
    }

    /// Removes the group `parent`, below which others were created, if it has none left. Returns
    /// whether it is gone.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than groups below it.
    pub fn remove_parent(parent: &str) -> Result<bool, CgroupError> {
        check_name(parent)?;
        let group = Self::named(&Layout::of_this_host()?, parent);
        group.dirs().into_iter().try_fold(true, |gone, dir| Ok(gone & remove_dir(dir)?))
    }
}

/// The open descriptors of a group, for a child between `fork` and `exec`.
#[derive(Debug)]
pub struct Entry {
    doors: Vec<OwnedFd>,
}

impl Entry {
    /// Moves the calling process into the group. Allocates nothing and takes no lock, so it may be
    /// called in `pre_exec`.
    ///
    /// # Errors
    /// When the group does not exist or is full.
    pub fn enter(&self) -> io::Result<()> {
        for door in &self.doors {
            rustix::io::write(door, b"0")?;
        }
        Ok(())
    }
}

pub(crate) fn ask_freezer(place: &Place, wanted: Motion) -> Result<(), CgroupError> {
    match place.version {
        Version::V1 => v1::ask_freezer(&place.dir, wanted),
        Version::V2 => v2::ask_freezer(&place.dir, wanted),
    }
}

pub(crate) fn motion(place: &Place) -> Result<Option<Motion>, CgroupError> {
    match place.version {
        Version::V1 => v1::motion(&place.dir),
        Version::V2 => v2::motion(&place.dir),
    }
}

pub(crate) fn memory(place: &Place) -> Result<MemoryUse, CgroupError> {
    match place.version {
        Version::V1 => v1::memory(&place.dir),
        Version::V2 => v2::memory(&place.dir),
    }
}

/// Removes `dir`. Returns whether it is gone; `false` while it is not empty.
pub(crate) fn remove_dir(dir: &Path) -> Result<bool, CgroupError> {
    match fs::remove_dir(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty) => {
            Ok(false)
        }
        Err(source) => Err(CgroupError::file("remove", dir.to_owned(), source)),
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), CgroupError> {
    let plain = |part: &str| {
        let known = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        known && !part.is_empty() && !part.starts_with('.') && part.len() <= 200
    };
    if name.split('/').all(plain) { Ok(()) } else { Err(CgroupError::Name(name.to_owned())) }
}
