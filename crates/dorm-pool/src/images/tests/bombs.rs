//! Small archives that would become large: a limit or the end of the disk stops them, and nothing of them stays.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::layers::{Layout, layer_names, pack};
use super::*;
use crate::images::documents::Packing;

const TEBIBYTE: u64 = 1 << 40;

/// A file system of so many bytes where images go.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn of(home: &TempDir, bytes: u64) -> Self {
        let path = home.path().join("images");
        fs::create_dir_all(&path).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes},mode=755")).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// An archive with files of zeros, which compresses to almost nothing.
fn zeros(files: usize, bytes: usize) -> Vec<u8> {
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    let content = vec![0; bytes];
    for number in 0..files {
        let mut header = header(&file(&format!("zeros-{number}"), ""));
        header.set_size(bytes as u64);
        header.set_cksum();
        packer.write_all(header.as_bytes()).unwrap();
        packer.write_all(&content).unwrap();
    }
    packer.write_all(&[0; 1024]).unwrap();
    packer.finish().unwrap()
}

#[tokio::test]
async fn a_bomb_is_stopped_by_the_end_of_the_disk_and_leaves_nothing() {
    let bomb = zeros(16, 8 << 20);
    assert!(bomb.len() < 32 << 10, "{} bytes", bomb.len());
    let home = tempfile::tempdir().unwrap();
    let disk = SmallDisk::of(&home, 24 << 20);
    let pool = Pool::open(&home.path().join("data"), &disk.0).unwrap();
    let is_full = |error: PoolError| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("No space left"), "{error}: {source}");
        assert_eq!((left(&home), layer_names(&home)), (Vec::new(), Vec::new()));
    };
    is_full(import(&pool, &write(&home, &bomb)).await.unwrap_err());
    let mut layout = Layout::new(&home);
    layout = layout.layer(Packing::Zstd, &zstd::stream::decode_all(&bomb[..]).unwrap());
    layout.write();
    is_full(import(&pool, &layout.path).await.unwrap_err());
    // What begins like an image in one file is decompressed before it is looked at.
    let begins_like_one = archive(&[file("oci-layout", "{}"), file("zeros", &"\0".repeat(64 << 20))]);
    is_full(import(&pool, &write(&home, &pack(Packing::Zstd, &begins_like_one))).await.unwrap_err());
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    pool.verify_image(&image.digest).await.unwrap();
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
    assert!(error.to_string().contains("2,000,000 at most"), "{error}");
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
