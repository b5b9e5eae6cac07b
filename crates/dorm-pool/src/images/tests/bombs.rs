//! Small archives that expand enormously: a limit or the reserve of the disk stops them, nothing of
//! them stays, and other writers to the disk are not disturbed.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::mount::{UnmountFlags, unmount};

use super::layers::{Layout, layer_names, pack, tar_of};
use super::*;
use crate::images::ImportLimits;
use crate::images::documents::Packing;

const TEBIBYTE: u64 = 1 << 40;
const MIB: u64 = 1 << 20;
const DISK: u64 = 96 * MIB;
const RESERVE: u64 = 32 * MIB;

/// A file system of its own for images, on a loop device.
struct SmallDisk {
    home: TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        if dorm_disk::Disk::probe().is_err() || !rustix::process::geteuid().is_root() {
            dorm_skip::skip("this needs root and loop devices");
            return None;
        }
        let disk = Self { home: tempfile::tempdir().unwrap() };
        let image = disk.home.path().join("disk.img");
        fs::File::create(&image).unwrap().set_len(DISK).unwrap();
        fs::create_dir(disk.path()).unwrap();
        let run = |program: &str, options: &[&str], paths: &[&Path]| {
            let status = Command::new(program).args(options).args(paths).status().unwrap();
            assert!(status.success(), "{program}");
        };
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-m", "0", "-N", "8192"], &[&image]);
        run("mount", &["-o", "loop,noatime"], &[&image, &disk.path()]);
        Some(disk)
    }

    /// Returns the directory of images.
    fn path(&self) -> PathBuf {
        self.home.path().join("images")
    }

    fn pool(&self, limits: ImportLimits) -> Pool {
        let pool = Pool::open(&self.home.path().join("data"), &self.path()).unwrap();
        pool.limited(RESERVE, limits)
    }

    fn free(&self) -> u64 {
        let facts = rustix::fs::statvfs(self.path()).unwrap();
        facts.f_bavail * facts.f_frsize
    }

    /// Returns the maximum of several readings. While ext4 writes an extent back it counts it twice
    /// for a moment, as reserved and as allocated (2 MiB of 96 MiB that were synced, measured on
    /// Linux 6.18).
    fn free_for_long(&self) -> u64 {
        (0..100).map(|_| self.free()).max().unwrap_or_default()
    }

    fn free_inodes(&self) -> u64 {
        rustix::fs::statvfs(self.path()).unwrap().f_favail
    }

    /// Imports `source` while another thread writes and syncs the same file over and over. The
    /// lowest free space meanwhile must not be less than the reserve.
    async fn import(&self, pool: &Pool, source: &Path) -> Result<Image, PoolError> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut least = u64::MAX;
                while !over.load(Ordering::Relaxed) {
                    least = least.min(self.free_for_long());
                }
                least
            });
            let neighbour = scope.spawn(|| {
                let path = self.path().join("neighbour");
                while !over.load(Ordering::Relaxed) {
                    let mut file = fs::File::create(&path).unwrap();
                    file.write_all(&[9; 16 << 10]).and_then(|()| file.sync_all()).unwrap();
                }
                fs::remove_file(path).unwrap();
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let imported = scope.spawn(move || runtime.block_on(import(pool, source))).join().unwrap();
            over.store(true, Ordering::Relaxed);
            neighbour.join().unwrap();
            let least = watch.join().unwrap();
            // The space of the other writer does not count.
            assert!(least >= RESERVE - MIB, "{least} bytes were free, {RESERVE} must stay so");
            imported
        })
    }

    fn assert_stopped(&self, what: &str, imported: Result<Image, PoolError>) {
        let error = imported.unwrap_err();
        assert!(matches!(error, PoolError::Reserve { .. }), "{what}: {error:?}");
        assert!(error.is_no_room() && error.to_string().contains("nearly full"), "{what}: {error}");
        assert_eq!((left(&self.home), layer_names(&self.home)), (vec!["lost+found".to_owned()], Vec::new()), "{what}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = self.path();
        let _ = unmount(&path, UnmountFlags::empty()).or_else(|_| unmount(&path, UnmountFlags::DETACH));
    }
}

/// An archive of files full of one byte, which compresses to almost nothing.
fn full_of(byte: u8, files: usize, bytes: usize) -> Vec<u8> {
    let content = vec![byte; bytes];
    let mut archive = archive(&[entry(EntryType::Directory, "./")]);
    archive.truncate(512);
    for number in 0..files {
        let mut header = header(&file(&format!("./full-{number}"), ""));
        header.set_size(bytes as u64);
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(&content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.extend_from_slice(&[0; 1024]);
    archive
}

#[tokio::test]
async fn a_bomb_is_stopped_at_the_reserve_of_the_disk_and_harms_no_neighbour() {
    let Some(disk) = SmallDisk::new() else { return };
    let pool = disk.pool(ImportLimits::default());
    let (before, inodes) = (disk.free(), disk.free_inodes());
    let large = full_of(7, 16, 8 << 20);
    let small = full_of(7, 30_000, 1);
    for (name, bomb, packing) in [("large files", &large, Packing::Gzip), ("small files", &small, Packing::Zstd)] {
        let path = write(&disk.home, &pack(packing, bomb));
        disk.assert_stopped(name, disk.import(&pool, &path).await);
        let layout = Layout::new(&disk.home).layer(Packing::Zstd, bomb);
        layout.write();
        disk.assert_stopped(&format!("a layer of {name}"), disk.import(&pool, &layout.path).await);
        // An archive that looks like an image is decompressed before it is read: here a compressed
        // layer in a compressed archive.
        let path = write(&disk.home, &pack(Packing::Zstd, &tar_of(&layout.path)));
        disk.assert_stopped(&format!("a nested layer of {name}"), disk.import(&pool, &path).await);
        fs::remove_dir_all(&layout.path).unwrap();
    }
    let begins_like_one =
        archive(&[entry(EntryType::Directory, "./"), file("oci-layout", "{}"), file("x", &"7".repeat(80 << 20))]);
    let path = write(&disk.home, &pack(Packing::Zstd, &begins_like_one));
    disk.assert_stopped("an archive that is spooled", disk.import(&pool, &path).await);
    assert_eq!((disk.free().abs_diff(before) < MIB, disk.free_inodes().abs_diff(inodes) < 16), (true, true));
    let image = disk.import(&pool, &write(&disk.home, &archive(&sample()))).await.unwrap();
    pool.verify_image(&image.digest).await.unwrap();
}

#[tokio::test]
async fn zeros_of_an_archive_take_no_room_but_count_as_bytes_of_the_image() {
    let Some(disk) = SmallDisk::new() else { return };
    let limits = ImportLimits { bytes: 512 * MIB, ..ImportLimits::default() };
    let pool = disk.pool(limits);
    let before = disk.free();
    let zeros = full_of(0, 1, 400 << 20);
    let image = disk.import(&pool, &write(&disk.home, &pack(Packing::Zstd, &zeros))).await.unwrap();
    assert_eq!(image.rootfs.join("full-0").metadata().unwrap().len(), 400 * MIB);
    pool.verify_image(&image.digest).await.unwrap();
    let taken = before - disk.free();
    assert!(taken < MIB, "{taken} bytes");
    let error =
        disk.import(&pool, &write(&disk.home, &pack(Packing::Zstd, &full_of(0, 2, 300 << 20)))).await.unwrap_err();
    assert!(error.to_string().contains("larger than 512 MiB"), "{error}");
    assert_eq!(left(&disk.home), [image.digest.to_string(), "lost+found".to_owned()]);
}

#[tokio::test]
async fn a_file_that_says_to_be_of_a_tebibyte_is_refused_before_it_is_written() {
    let mut plain = header(&file("large", ""));
    plain.set_size(TEBIBYTE);
    plain.set_cksum();
    let mut hole = header(&Entry { kind: EntryType::GNUSparse, ..file("hole", "") });
    let gnu = hole.as_gnu_mut().unwrap();
    gnu.set_real_size(TEBIBYTE);
    gnu.sparse[0].set_offset(TEBIBYTE);
    gnu.sparse[0].set_length(0);
    hole.set_cksum();
    for header in [plain, hole] {
        let (home, pool) = home();
        let bomb = pack(Packing::Gzip, &[&header.as_bytes()[..], &[0; 1 << 20]].concat());
        let error = import(&pool, &write(&home, &bomb)).await.unwrap_err();
        assert!(error.to_string().contains("larger than 64 GiB"), "{error}");
        assert_eq!(left(&home), [""; 0]);
    }
}

#[tokio::test]
async fn an_archive_of_millions_of_entries_is_refused_by_the_name_of_the_first_too_many() {
    let (home, pool) = home();
    let mut global = header(&Entry { kind: EntryType::XGlobalHeader, ..file("global", "") });
    global.set_cksum();
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    let thousand = global.as_bytes().repeat(1000);
    for _ in 0..2001 {
        packer.write_all(&thousand).unwrap();
    }
    packer.write_all(&[0; 1024]).unwrap();
    let bomb = packer.finish().unwrap();
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let error = import(&pool, &write(&home, &bomb)).await.unwrap_err();
    assert!(error.to_string().contains("limit of 2,000,000 entries"), "{error}");
    assert_eq!(left(&home), [""; 0]);
}

#[tokio::test]
async fn a_set_uid_file_belongs_to_the_root_of_guests_and_not_of_the_host() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&[Entry { mode: 0o6755, ..file("su", "x") }]))).await.unwrap();
    let facts = fs::symlink_metadata(image.rootfs.join("su")).unwrap();
    assert_eq!((facts.mode() & 0o7777, facts.uid(), facts.gid()), (0o6755, GUEST_ID_BASE, GUEST_ID_BASE));
    let above = fs::metadata(home.path().join("images")).unwrap();
    assert_eq!(above.mode() & 0o007, 0, "ordinary users of the host cannot pass to it");
}
