//! File systems that can share blocks between files, and one of the bench's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::stage::Stage;
use crate::setup::find;

/// The sizes of the file system: two sandboxes of 1 GiB, each with two images.
const BYTES: u64 = 14 << 30;

/// Returns whether files in `directory` can share blocks.
pub(super) fn works_in(directory: &Path) -> Result<bool> {
    let (from, to) = (directory.join("reflink-from"), directory.join("reflink-to"));
    fs::write(&from, [1; 4096]).with_context(|| format!("write {}", from.display()))?;
    let target = File::create(&to).with_context(|| format!("make {}", to.display()))?;
    let source = File::open(&from).with_context(|| format!("open {}", from.display()))?;
    let works = rustix::fs::ioctl_ficlone(&target, &source).is_ok();
    for path in [from, to] {
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(works)
}

/// Returns the kind of file system that `directory` is on, such as `ext4`, and whether it has
/// reflinks.
pub(super) fn kind_of(directory: &Path) -> Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let under = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let at = left.split(' ').nth(4)?.to_owned();
        directory.starts_with(&at).then(|| (at.len(), right.split(' ').next().unwrap_or_default().to_owned()))
    };
    let kind = mounts.lines().filter_map(under).max().map_or_else(|| "an unknown disk".to_owned(), |(_, kind)| kind);
    Ok(format!("{kind} {} reflink", if works_in(directory)? { "with" } else { "without" }))
}

/// A mounted XFS in a file.
pub(super) struct Disk {
    file: PathBuf,
    mounted: PathBuf,
}

/// Whether there is such a disk.
pub(super) enum Made {
    Disk(Disk),
    /// The host lacks this.
    Lacks(String),
}

impl Disk {
    /// Makes and mounts it, if the host has `mkfs.xfs` and room for it.
    pub(super) fn make(stage: &Stage) -> Result<Made> {
        let Some(mkfs) = find("mkfs.xfs") else { return Ok(Made::Lacks("this host has no mkfs.xfs".to_owned())) };
        let room = rustix::fs::statvfs(&stage.directory).context("look at the disk")?;
        if room.f_bavail.saturating_mul(room.f_frsize) < BYTES {
            return Ok(Made::Lacks(format!("less than {} GiB of the disk are free", BYTES >> 30)));
        }
        let (file, mounted) = (stage.path("xfs.img"), stage.path("xfs"));
        fs::create_dir_all(&mounted).with_context(|| format!("make {}", mounted.display()))?;
        let sized = File::create(&file).and_then(|file| file.set_len(BYTES));
        sized.with_context(|| format!("make {}", file.display()))?;
        run(Command::new(mkfs).args(["-q", "-m", "reflink=1"]).arg(&file))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&mounted))?;
        Ok(Made::Disk(Self { file, mounted }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.mounted
    }

    /// Unmounts and removes it.
    pub(super) fn remove(self) -> Result<()> {
        run(Command::new("umount").arg(&self.mounted))?;
        fs::remove_file(&self.file).with_context(|| format!("remove {}", self.file.display()))
    }
}

/// Unmounts everything below the directory of a bench that was killed.
pub(super) fn unmount_below(directory: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let at = mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    at.filter(|at| at.starts_with(directory)).try_for_each(|at| run(Command::new("umount").arg(at)))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
