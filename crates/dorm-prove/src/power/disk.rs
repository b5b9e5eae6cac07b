//! A file system in a file that can lose its power: it stops at once and loses everything that was
//! not synced.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dorm_testing::loop_device;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::mount::{UnmountFlags, unmount};

use crate::host::PATH;

const BYTES: u64 = 8 << 30;
/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: Opcode = 0x8004_587D;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: the journal is not flushed.
const WITHOUT_JOURNAL: u32 = 2;
/// How long the file system may stay in use after every process on it was ended.
const RELEASE: Duration = Duration::from_secs(60);
/// Nothing is synced unless asked for: no periodic commit, and no sync after a rename.
const OPTIONS: &str = "loop,noatime,commit=3000,noauto_da_alloc,noinit_itable";

/// The file system; unmounted and removed when dropped.
#[derive(Debug)]
pub(crate) struct PowerDisk {
    image: PathBuf,
    path: PathBuf,
    /// True from the cut until it is mounted again.
    is_off: AtomicBool,
}

impl PowerDisk {
    /// Makes the file system in `directory`, mounted at `disk` there.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        // As the kernel names it.
        let directory = directory.canonicalize().with_context(|| format!("find {}", directory.display()))?;
        let (image, path) = (directory.join("disk.img"), directory.join("disk"));
        let disk = Self { image, path, is_off: AtomicBool::new(false) };
        let file = File::create(&disk.image).with_context(|| format!("make {}", disk.image.display()))?;
        file.set_len(BYTES).context("set the size of the disk")?;
        std::fs::create_dir(&disk.path).with_context(|| format!("make {}", disk.path.display()))?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"], &[&disk.image])?;
        disk.mount()?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    /// Cuts the power: from now on nothing reaches the disk, and what was not synced never does.
    pub(crate) fn cut(&self) -> Result<()> {
        let root = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        shut_down(&root).with_context(|| format!("shut down the file system at {}", self.path.display()))?;
        self.is_off.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Mounts the file system again after a cut, and replays its journal. Nothing may use it any
    /// more.
    pub(crate) fn switch_on(&self) -> Result<()> {
        let end = Instant::now() + RELEASE;
        while let Err(error) = unmount(&self.path, UnmountFlags::empty()) {
            if error != rustix::io::Errno::BUSY || Instant::now() > end {
                return Err(error).with_context(|| format!("unmount {} after a power cut", self.path.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The super block lives for as long as another mount namespace has a copy of the mount, and
        // must not be reused.
        while let Some(device) = loop_device(&self.image) {
            if Instant::now() > end {
                bail!("{device} still holds {}: another mount namespace uses it", self.image.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mount()?;
        self.is_off.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn mount(&self) -> Result<()> {
        run("mount", &["-o", OPTIONS], &[&self.image, &self.path])
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::empty()).or_else(|_| unmount(&self.path, UnmountFlags::DETACH));
        let _ = std::fs::remove_file(&self.image);
    }
}

#[allow(unsafe_code)]
fn shut_down(root: &File) -> rustix::io::Result<()> {
    // SAFETY: this request reads one `u32` through its pointer and writes nothing.
    unsafe { ioctl(root, Setter::<SHUTDOWN, u32>::new(WITHOUT_JOURNAL)) }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> Result<()> {
    let output = Command::new(program).args(options).args(paths).env("PATH", PATH).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_loses_what_was_not() {
        let directory = tempfile::Builder::new().prefix("dorm-").tempdir_in("/var/tmp").unwrap();
        let disk = PowerDisk::make(directory.path()).unwrap();
        let synced = disk.path().join("synced");
        let mut file = File::create(&synced).unwrap();
        file.write_all(b"kept").unwrap();
        file.sync_all().unwrap();
        drop(file);
        File::open(disk.path()).unwrap().sync_all().unwrap();
        std::fs::write(disk.path().join("not synced"), "lost").unwrap();
        disk.cut().unwrap();
        assert!(disk.is_off());
        assert!(std::fs::write(disk.path().join("after"), "refused").is_err());
        disk.switch_on().unwrap();
        assert_eq!(std::fs::read(&synced).unwrap(), b"kept");
        assert!(!disk.path().join("not synced").exists());
        assert!(!disk.path().join("after").exists());
        let path = disk.path().to_owned();
        drop(disk);
        assert!(dorm_testing::held_by_kernel(&path).is_empty());
    }
}
