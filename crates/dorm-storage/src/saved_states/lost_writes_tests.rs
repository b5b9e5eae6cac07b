//! A tree on a disk that has lost writes is not committed, even if another program has already
//! received the error.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::Command;

use dorm_disk::{Disk, KeptDisk};
use dorm_engine::{EntryKind, FileSink};
use dorm_steps::pass;
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::mount::{UnmountFlags, unmount};

use super::tests::{facts, id, open};
use super::tree_tests::{Pieces, entry};
use crate::{Below, GuestIds};

/// A large disk in a file on a small file system.
struct Overcommitted {
    place: tempfile::TempDir,
}

impl Overcommitted {
    fn new() -> Option<Self> {
        if Disk::probe().is_err() || !rustix::process::geteuid().is_root() {
            dorm_skip::skip("this needs root and loop devices");
            return None;
        }
        let made = Self { place: tempfile::tempdir().unwrap() };
        let image = made.place.path().join("host.img");
        File::create(&image).unwrap().set_len(96 << 20).unwrap();
        fs::create_dir(made.host()).unwrap();
        let formatted =
            Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-m", "0"]).arg(&image).status().unwrap();
        let mounted = Command::new("mount").args(["-o", "loop"]).args([&image, &made.host()]).status().unwrap();
        assert!(formatted.success() && mounted.success());
        KeptDisk::make(&made.host().join("disk"), GuestIds::DEFAULT, 4 << 30).unwrap();
        made.disk().mount().unwrap();
        Some(made)
    }

    fn host(&self) -> PathBuf {
        self.place.path().join("host")
    }

    fn disk(&self) -> KeptDisk {
        KeptDisk::at(&self.host().join("disk"))
    }

    fn fill(&self) {
        let mut ballast = File::create(self.host().join("ballast")).unwrap();
        let free = || statvfs(self.host()).unwrap().f_bavail * 4096;
        while free() > 64 * 4096 {
            let end = ballast.metadata().unwrap().len();
            let _ = fallocate(&ballast, FallocateFlags::empty(), end, free() - 32 * 4096);
        }
        ballast.seek(SeekFrom::End(0)).unwrap();
        while ballast.write_all(&[0; 4096]).and_then(|()| ballast.sync_data()).is_ok() {}
    }
}

impl Drop for Overcommitted {
    fn drop(&mut self) {
        let _ = Disk::remove_in(&self.host().join("disk"));
        let host = self.host();
        let _ = unmount(&host, UnmountFlags::empty()).or_else(|_| unmount(&host, UnmountFlags::DETACH));
    }
}

#[tokio::test]
async fn a_tree_whose_lost_write_another_program_was_told_of_is_not_committed() {
    let Some(place) = Overcommitted::new() else { return };
    let top = place.disk().path();
    let storage = open(&top, pass());
    let draft = storage.begin(&id(1), 0).await.unwrap();
    let mut tree = draft.tree(Below::default()).unwrap();
    place.fill();
    let large = entry(b"large", EntryKind::File { bytes: 16 << 20 });
    tree.take(&large, &mut Pieces::whole(&vec![7; 16 << 20])).unwrap();
    tree.settle().unwrap();
    assert!(syncfs(File::open(&top).unwrap()).is_err(), "the disk loses no write");
    fs::remove_file(place.host().join("ballast")).unwrap();
    syncfs(File::open(&top).unwrap()).unwrap();
    assert!(draft.commit_tree(facts(), tree).await.is_err());
    drop(storage);
}
