//! Formatted, empty, sparse disk images, one per size, kept to be copied: formatting starts a
//! program, copying does not.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dorm_guest_ids::GuestIds;
use rustix::fs::SeekFrom;

use super::DiskError;

/// Changes whenever the options below change, so that old templates are not used any more.
const FORMAT: &str = "2";
const DRAFT: &str = ".disk-draft-";
/// No draft takes that long; an older one was left by a crash.
const DRAFT_AGE_MAX: Duration = Duration::from_secs(3600);
const BLOCK_BYTES: usize = 256 << 10;

/// Returns the template for disks of `bytes` whose top directory is owned by root of `ids`, in the
/// directory `cache`. Creates it if it is missing.
pub(super) fn template(cache: &Path, ids: GuestIds, bytes: u64) -> Result<PathBuf, DiskError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let path = cache.join(format!("disk-{FORMAT}-{}-{bytes}.img", ids.base()));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(cache).map_err(|source| DiskError::file("create", cache, source))?;
    remove_old_drafts(cache);
    // Formatted under another name, so that after a crash, or for another process, no partial
    // template is visible.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = cache.join(format!("{DRAFT}{bytes}-{}-{count}", std::process::id()));
    let made = format(&draft, ids, bytes).and_then(|()| {
        fs::rename(&draft, &path).map_err(|source| DiskError::file("rename into place", &draft, source))
    });
    if made.is_err() {
        let _ = fs::remove_file(&draft);
    }
    made.map(|()| path)
}

/// Formats without a journal, since the content of such a disk does not outlive its run. Nothing is
/// written ahead or discarded, since the file is empty anyway. There is one inode per 64 KiB,
/// because the engine keeps few files there.
fn format(draft: &Path, ids: GuestIds, bytes: u64) -> Result<(), DiskError> {
    let extended = format!("lazy_itable_init=1,nodiscard,root_owner={root}:{root}", root = ids.base());
    let options = ["-m", "0", "-i", "65536", "-O", "^has_journal,^resize_inode", "-E", extended.as_str()];
    format_with(draft, bytes, &options)
}

/// Creates a durable file system for a kept disk in the new file `image`, with a journal and one
/// inode per 16 KiB.
pub(super) fn format_kept(image: &Path, ids: GuestIds, bytes: u64) -> Result<(), DiskError> {
    let extended =
        format!("lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner={root}:{root}", root = ids.base());
    format_with(image, bytes, &["-m", "0", "-i", "16384", "-E", extended.as_str()])
}

fn format_with(draft: &Path, bytes: u64, options: &[&str]) -> Result<(), DiskError> {
    let wrong = |source| DiskError::file("create", draft, source);
    let file = create_private(draft).map_err(wrong)?;
    file.set_len(bytes).map_err(wrong)?;
    let mut command = formatter();
    let output =
        command.args(["-q", "-F", "-b", "4096"]).args(options).arg(draft).output().map_err(DiskError::NoFormatter)?;
    if output.status.success() {
        // Under its final name it must be complete, even after a power failure.
        return file.sync_all().map_err(wrong);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(DiskError::Format { bytes, status: output.status, said })
}

/// Creates a file that only root can read, since it will contain what a guest writes.
fn create_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn remove_old_drafts(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().to_str().is_some_and(|name| name.starts_with(DRAFT));
        let age = entry.metadata().and_then(|file| file.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_draft && age.is_some_and(|age| age > DRAFT_AGE_MAX) {
            // At worst it stays: it is small and not used.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns the program. It is found even if the daemon's search path lacks the system's
/// directories, and gets no variables that change its options.
fn formatter() -> Command {
    let mut command = Command::new("mkfs.ext4");
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Copies `template` to the new file `to`: as a reflink if the file system supports it, otherwise
/// without the holes.
pub(super) fn copy(template: &Path, to: &Path) -> Result<(), DiskError> {
    let source = File::open(template).map_err(|error| DiskError::file("open", template, error))?;
    let wrong = |error| DiskError::file("copy the template to", to, error);
    let target = create_private(to).map_err(wrong)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    copy_extents(&source, &target).map_err(wrong)
}

fn copy_extents(source: &File, target: &File) -> io::Result<()> {
    let end = source.metadata()?.len();
    target.set_len(end)?;
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut at = 0;
    while at < end {
        let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let stop = rustix::fs::seek(source, SeekFrom::Hole(start))?;
        at = start;
        while at < stop {
            let length = usize::try_from(stop - at).unwrap_or(usize::MAX).min(block.len());
            let part = block.get_mut(..length).unwrap_or_default();
            source.read_exact_at(part, at)?;
            target.write_all_at(part, at)?;
            at += length as u64;
        }
    }
    Ok(())
}

/// Checks that the program that formats disks exists.
pub(super) fn probe() -> Result<(), DiskError> {
    formatter().arg("-V").output().map(drop).map_err(DiskError::NoFormatter)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_copy_is_equal_sparse_and_private() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let (from, to) = (dir.join("from"), dir.join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(40 << 20).unwrap();
        file.write_all_at(&[1; 5000], 1 << 20).unwrap();
        file.write_all_at(&[2; 600_000], 30 << 20).unwrap();
        copy(&from, &to).unwrap();
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        let metadata = fs::metadata(&to).unwrap();
        assert!(metadata.blocks() * 512 < 4 << 20, "{} blocks", metadata.blocks());
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(copy(&from, &to).is_err(), "it never overwrites");
    }

    #[test]
    fn only_old_drafts_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        for (name, age) in [(".disk-draft-old", 7200), (".disk-draft-new", 10), ("disk-1-64.img", 7200)] {
            let file = File::create(dir.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        remove_old_drafts(dir);
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".disk-draft-new", "disk-1-64.img"]);
    }
}
