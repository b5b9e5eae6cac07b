//! A file system with little room, in a file, that can be filled to its last block and emptied
//! again.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::mount::{UnmountFlags, unmount};

use crate::host::PATH;

const BYTES: u64 = 600 << 20;
const BLOCK: usize = 4096;

/// The file system; unmounted and removed when dropped.
pub(crate) struct SmallDisk {
    image: PathBuf,
    path: PathBuf,
}

impl SmallDisk {
    /// Makes the file system in `directory`.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        let disk = Self { image: directory.join("disk.img"), path: directory.join("disk") };
        let file = std::fs::File::create(&disk.image).with_context(|| format!("make {}", disk.image.display()))?;
        file.set_len(BYTES).context("give the disk its size")?;
        std::fs::create_dir(&disk.path).with_context(|| format!("make {}", disk.path.display()))?;
        // Root has no reserve: full means full, for the daemon too.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0"], &[&disk.image])?;
        run("mount", &["-o", "loop,noatime"], &[&disk.image, &disk.path])?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a handle that fills the disk from elsewhere.
    pub(crate) fn filler(&self) -> Filler {
        Filler(self.path.join("ballast"))
    }

    /// Removes the data that fills it.
    pub(crate) fn empty(&self) -> Result<()> {
        match std::fs::remove_file(self.path.join("ballast")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("empty the disk"),
            _ => Ok(()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::empty()).or_else(|_| unmount(&self.path, UnmountFlags::DETACH));
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Fills the disk.
#[derive(Clone)]
pub(crate) struct Filler(PathBuf);

impl Filler {
    /// Fills the disk until only this many bytes are left.
    pub(crate) fn fill(&self, left: u64) -> Result<()> {
        let mut ballast = OpenOptions::new().create(true).append(true).open(&self.0).context("fill the disk")?;
        // Earlier writes must have reached the disk.
        syncfs(&ballast).context("sync the disk")?;
        let room = || -> Result<u64> {
            let facts = statvfs(self.0.parent().unwrap_or(Path::new("/"))).context("look at the disk")?;
            Ok(facts.f_bavail * facts.f_frsize)
        };
        loop {
            let more = room()?.saturating_sub(left) / BLOCK as u64 * BLOCK as u64;
            let end = ballast.metadata().context("look at the ballast")?.len();
            if more == 0 {
                return Ok(());
            }
            // The file's own tree takes blocks too: the last ones are written one by one.
            if more > 64 * BLOCK as u64 {
                let most = more - 32 * BLOCK as u64;
                if fallocate(&ballast, FallocateFlags::empty(), end, most).is_ok() {
                    continue;
                }
            }
            match ballast.write_all(&[0; BLOCK]).and_then(|()| ballast.sync_data()) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                other => other.context("fill the disk")?,
            }
        }
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> Result<()> {
    let output = Command::new(program).args(options).args(paths).env("PATH", PATH).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
