use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::{CWD, Dev};

use super::*;
use crate::{Limiting, TopMode};

const ID: [u8; 20] = [7; 20];
const USER: Ownership = Ownership { uid: 1000, gid: 1001, mode: 0o640 };
const STRICT: NewEntry = NewEntry { ownership: USER, parents: Parents::Required, if_exists: IfExists::Refuse };
const FORCED: NewEntry =
    NewEntry { ownership: USER, parents: Parents::Created(USER_DIRECTORY), if_exists: IfExists::Accept };
const USER_DIRECTORY: Ownership = Ownership { mode: 0o777, ..USER };

struct World {
    place: tempfile::TempDir,
    volumes: Volumes,
    id: VolumeId,
    top: PathBuf,
}

impl World {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(place.path().join("volumes"), Limiting::Never);
        let id = VolumeId::from_random(ID);
        volumes.make(&id, 64 << 20, TopMode::Everyone).await.unwrap();
        let top = volumes.mount(&id, None).await.unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        Self { place, volumes, id, top }
    }

    async fn stat(&self, path: &str) -> Result<EntryStat, VolumeError> {
        self.volumes.stat(&self.id, &at(path)).await
    }

    async fn write(&self, path: &str, text: &str, new: NewEntry) -> Result<EntryStat, VolumeError> {
        let mut file = self.volumes.write_entry(&self.id, &at(path), new).await?;
        file.take()?.write_all(text.as_bytes()).unwrap();
        file.finish()
    }

    async fn make(&self, path: &str, new: NewEntry) -> Result<EntryStat, VolumeError> {
        self.volumes.make_directory(&self.id, &at(path), new).await
    }

    async fn remove(&self, path: &str) -> Result<(), VolumeError> {
        self.volumes.remove_entry(&self.id, &at(path)).await
    }

    async fn paths(&self, path: &str, depth: u32) -> Vec<String> {
        let entries = self.volumes.list_tree(&self.id, &at(path), depth).await.unwrap();
        entries.into_iter().map(|entry| entry.path).collect()
    }

    fn secret_is_kept(&self) {
        assert_eq!(fs::read_to_string(self.place.path().join("secret")).unwrap(), "secret");
        assert_eq!(fs::metadata(self.place.path().join("secret")).unwrap().uid(), rustix::process::getuid().as_raw());
    }
}

fn at(path: &str) -> EntryPath {
    path.parse().unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T, VolumeError>) -> io::ErrorKind {
    result.unwrap_err().path_kind().unwrap()
}

/// Owners are only changed with the permission to do so.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn a_written_file_has_the_owner_and_mode_it_was_given() {
    let world = World::new().await;
    let written = world.write("/a.txt", "hello", STRICT).await.unwrap();
    assert_eq!((written.name.as_str(), written.path.as_str(), written.bytes), ("a.txt", "/a.txt", 5));
    assert_eq!((written.kind, written.mode), (FileKind::File, 0o640));
    if is_root() {
        assert_eq!((written.uid, written.gid), (1000, 1001));
        assert_eq!(fs::metadata(world.top.join("a.txt")).unwrap().uid(), GuestIds::DEFAULT.base() + 1000);
    }
    assert_eq!(world.stat("/a.txt").await.unwrap(), written);
    assert!(written.modified > SystemTime::UNIX_EPOCH && written.target.is_none());
}

#[tokio::test]
async fn a_strict_write_neither_replaces_a_file_nor_makes_directories() {
    let world = World::new().await;
    world.write("a", "first", STRICT).await.unwrap();
    assert_eq!(kind(world.volumes.write_entry(&world.id, &at("a"), STRICT).await), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(world.write("b/c", "x", STRICT).await), io::ErrorKind::NotFound);
    assert_eq!(kind(world.write("a/c", "x", STRICT).await), io::ErrorKind::NotFound, "a file is not a directory");
    world.write("a", "second", FORCED).await.unwrap();
    world.write("b/c", "x", FORCED).await.unwrap();
    assert_eq!(fs::read_to_string(world.top.join("a")).unwrap(), "second");
    assert_eq!(world.stat("b").await.unwrap().mode, 0o777);
    assert_eq!(kind(world.write("b", "x", FORCED).await), io::ErrorKind::IsADirectory);
    assert_eq!(kind(world.write("/", "x", FORCED).await), io::ErrorKind::IsADirectory);
}

#[tokio::test]
async fn of_two_strict_writes_of_one_name_the_later_fails_and_leaves_nothing() {
    let world = World::new().await;
    let begun = world.volumes.write_entry(&world.id, &at("a"), STRICT).await.unwrap();
    world.write("a", "other", STRICT).await.unwrap();
    assert_eq!(kind(begun.finish()), io::ErrorKind::AlreadyExists);
    assert_eq!(world.paths("/", 1).await, ["/a"]);
    assert_eq!(fs::read_to_string(world.top.join("a")).unwrap(), "other");
}

#[tokio::test]
async fn a_directory_is_made_once_unless_it_is_forced() {
    let world = World::new().await;
    let made = world.make("/d", STRICT).await.unwrap();
    assert_eq!((made.kind, made.mode, made.path.as_str()), (FileKind::Directory, 0o640, "/d"));
    assert_eq!(kind(world.make("/d", STRICT).await), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(world.make("/x/y", STRICT).await), io::ErrorKind::NotFound);
    let other = NewEntry { ownership: USER_DIRECTORY, ..FORCED };
    assert_eq!(world.make("/d", other).await.unwrap().mode, 0o640, "an existing one stays as it is");
    world.make("/x/y", FORCED).await.unwrap();
    assert_eq!((world.stat("/x").await.unwrap().mode, world.stat("/x/y").await.unwrap().mode), (0o777, 0o640));
    world.write("/f", "x", STRICT).await.unwrap();
    assert_eq!(kind(world.make("/f", FORCED).await), io::ErrorKind::AlreadyExists);
    symlink("nowhere", world.top.join("dangling")).unwrap();
    assert_eq!(kind(world.make("/dangling", FORCED).await), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(world.make("/", STRICT).await), io::ErrorKind::AlreadyExists);
    assert_eq!(world.make("/", FORCED).await.unwrap().mode, 0o777);
}

#[tokio::test]
async fn owner_and_mode_of_an_entry_change_apart() {
    let world = World::new().await;
    world.write("a", "x", STRICT).await.unwrap();
    let path = at("a");
    let change = |change| world.volumes.change(&world.id, &path, change);
    let changed = change(EntryChange { mode: Some(0o4755), ..EntryChange::default() }).await.unwrap();
    assert_eq!(changed.mode, 0o4755);
    if is_root() {
        assert_eq!((changed.uid, changed.gid), (1000, 1001));
        let changed = change(EntryChange { uid: Some(5), mode: Some(0o4700), ..EntryChange::default() }).await.unwrap();
        assert_eq!((changed.uid, changed.gid, changed.mode), (5, 1001, 0o4700), "the mode is set after the owner");
        std::os::unix::fs::chown(world.top.join("a"), Some(0), Some(12)).unwrap();
        let foreign = world.stat("a").await.unwrap();
        assert_eq!((foreign.uid, foreign.gid), (65_534, 65_534), "no guest has the ids of the host");
    }
    let beyond = EntryChange { uid: Some(65_536), ..EntryChange::default() };
    assert_eq!(kind(change(beyond).await), io::ErrorKind::InvalidInput);
    assert_eq!(kind(world.volumes.change(&world.id, &at("b"), beyond).await), io::ErrorKind::NotFound);
    assert_eq!(world.stat("/").await.unwrap().name, "/");
}

#[tokio::test]
async fn links_are_shown_and_removed_and_never_lead_out() {
    let world = World::new().await;
    symlink(world.place.path().join("secret"), world.top.join("absolute")).unwrap();
    symlink("../../../secret", world.top.join("relative")).unwrap();
    symlink("../../..", world.top.join("up")).unwrap();
    symlink("loop", world.top.join("loop")).unwrap();
    symlink("inside", world.top.join("within")).unwrap();
    fs::create_dir(world.top.join("inside")).unwrap();
    let link = world.stat("relative").await.unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (FileKind::Symlink, Some("../../../secret")));
    let change = EntryChange { uid: Some(1), mode: Some(0o777), ..EntryChange::default() };
    for path in ["absolute", "relative", "up", "loop", "up/secret"] {
        assert!(world.volumes.change(&world.id, &at(path), change).await.is_err(), "{path}");
        assert!(world.volumes.list_tree(&world.id, &at(path), 2).await.is_err(), "{path}");
    }
    for path in ["up/secret", "up/new"] {
        assert!(world.stat(path).await.is_err(), "{path}");
        assert!(world.remove(path).await.is_err(), "{path}");
        assert!(world.write(path, "x", FORCED).await.is_err(), "{path}");
        assert!(world.make(path, FORCED).await.is_err(), "{path}");
    }
    world.write("within/file", "x", STRICT).await.unwrap();
    assert_eq!(
        world.paths("/", 9).await,
        ["/absolute", "/inside", "/inside/file", "/loop", "/relative", "/up", "/within"]
    );
    assert_eq!(world.paths("within", 9).await, ["/within/file"], "a link that stays inside is followed");
    for path in ["absolute", "relative", "up", "loop", "within"] {
        world.remove(path).await.unwrap();
    }
    assert_eq!(world.paths("/", 9).await, ["/inside", "/inside/file"]);
    world.secret_is_kept();
}

#[tokio::test]
async fn a_tree_is_listed_to_a_depth_and_directories_come_before_their_entries() {
    let world = World::new().await;
    for path in ["a/b/c/d", "a/x", "z"] {
        world.write(path, "", FORCED).await.unwrap();
    }
    assert_eq!(world.paths("/", 1).await, ["/a", "/z"]);
    assert_eq!(world.paths("/", 0).await, ["/a", "/z"]);
    assert_eq!(world.paths("/", 2).await, ["/a", "/a/b", "/a/x", "/z"]);
    assert_eq!(world.paths("a", DEPTH_MAX).await, ["/a/b", "/a/b/c", "/a/b/c/d", "/a/x"]);
    assert_eq!(kind(world.volumes.list_tree(&world.id, &at("z"), 1).await), io::ErrorKind::NotADirectory);
    assert_eq!(kind(world.volumes.list_tree(&world.id, &at("y"), 1).await), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_list_is_refused_when_it_has_too_many_entries_or_too_long_paths() {
    let world = World::new().await;
    world.make("wide", FORCED).await.unwrap();
    for number in 0..=ENTRIES_MAX {
        fs::write(world.top.join(format!("wide/{number}")), "").unwrap();
    }
    let refused = world.volumes.list_tree(&world.id, &at("wide"), 1).await.unwrap_err();
    assert!(matches!(&refused, VolumeError::TooMany { path, .. } if path == "/wide"), "{refused}");
    fs::remove_file(world.top.join("wide/0")).unwrap();
    assert_eq!(world.paths("wide", 1).await.len(), ENTRIES_MAX);
    world.remove("wide").await.unwrap();
    let deep: PathBuf = std::iter::repeat_n("n".repeat(200), 15).collect();
    fs::create_dir_all(world.top.join(&deep)).unwrap();
    for number in 0..4_000 {
        fs::write(world.top.join(&deep).join(format!("{number}")), "").unwrap();
    }
    assert!(matches!(world.volumes.list_tree(&world.id, &at("/"), 64).await, Err(VolumeError::TooMany { .. })));
}

#[tokio::test]
async fn a_tree_deeper_than_any_path_and_wide_is_removed_whole() {
    let world = World::new().await;
    world.make("keep", FORCED).await.unwrap();
    world.make("tree", FORCED).await.unwrap();
    symlink("../keep", world.top.join("tree/link")).unwrap();
    fs::write(world.top.join("keep/file"), "kept").unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open(world.top.join("tree"), flags, Mode::empty()).unwrap();
    for level in 0..1_000 {
        for name in ["down", "beside"] {
            rustix::fs::mkdirat(&directory, name, Mode::RWXU).unwrap();
        }
        if level % 100 == 0 {
            rustix::fs::openat(&directory, "file", OFlags::CREATE | OFlags::CLOEXEC, Mode::RWXU).unwrap();
        }
        directory = rustix::fs::openat(&directory, "down", flags, Mode::empty()).unwrap();
    }
    drop(directory);
    world.remove("tree").await.unwrap();
    assert_eq!(world.paths("/", 9).await, ["/keep", "/keep/file"]);
    assert_eq!(kind(world.remove("tree").await), io::ErrorKind::NotFound);
    assert_eq!(kind(world.remove("keep/file/x").await), io::ErrorKind::NotFound);
    assert_eq!(kind(world.remove("/").await), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn names_that_are_not_utf_8_are_shown_and_go_with_their_directory() {
    let world = World::new().await;
    let odd = world.top.join("d").join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir_all(&odd).unwrap();
    fs::write(odd.join("below"), "x").unwrap();
    symlink(OsStr::from_bytes(b"to\xff"), world.top.join("d/link")).unwrap();
    let entries = world.volumes.list_tree(&world.id, &at("d"), 3).await.unwrap();
    let shown: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.target.as_deref())).collect();
    assert_eq!(shown, [("/d/link", Some("to\u{fffd}")), ("/d/odd\u{fffd}", None), ("/d/odd\u{fffd}/below", None)]);
    world.remove("d").await.unwrap();
    assert!(world.paths("/", 3).await.is_empty());
}

#[tokio::test]
async fn pipes_and_devices_are_shown_changed_and_removed_but_never_opened() {
    let world = World::new().await;
    let pipe = world.top.join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, Dev::default()).unwrap();
    assert_eq!(world.stat("pipe").await.unwrap().kind, FileKind::Other);
    let change = EntryChange { mode: Some(0o600), ..EntryChange::default() };
    assert_eq!(world.volumes.change(&world.id, &at("pipe"), change).await.unwrap().mode, 0o600);
    assert_eq!(kind(world.volumes.read(&world.id, "pipe").await), io::ErrorKind::InvalidInput);
    world.remove("pipe").await.unwrap();
    assert!(!pipe.exists());
}

#[test]
fn times_are_whole_before_1970_and_beyond_every_range() {
    assert_eq!(moment(-1, 500_000_000_i64), SystemTime::UNIX_EPOCH - Duration::from_millis(500));
    assert_eq!(moment(1, -1_i64), SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    assert_eq!(moment(i64::MAX, 2_000_000_000_i64), SystemTime::UNIX_EPOCH);
}

#[tokio::test]
async fn the_top_of_a_volume_is_open_to_everyone_if_it_was_made_so() {
    let world = World::new().await;
    assert_eq!(fs::metadata(&world.top).unwrap().permissions().mode() & 0o777, 0o777);
    let other = VolumeId::from_random([8; 20]);
    world.volumes.make(&other, 64 << 20, TopMode::Root).await.unwrap();
    assert_eq!(world.volumes.stat(&other, &at("/")).await.unwrap().mode, 0o755);
}

#[tokio::test]
async fn a_full_volume_refuses_entries_until_something_is_removed() {
    if let Err(error) = dorm_disk::Disk::probe() {
        dorm_skip::skip(crate::chain(&error));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(place.path(), Limiting::WherePossible);
    let id = VolumeId::from_random(ID);
    volumes.make(&id, 16 << 20, TopMode::Everyone).await.unwrap();
    assert_eq!(volumes.stat(&id, &at("/")).await.unwrap().mode, 0o777);
    let top = volumes.mount(&id, None).await.unwrap();
    let mut filling = fs::File::create(top.join("filling")).unwrap();
    while filling.write_all(&[1; 4096]).is_ok() {}
    drop(filling);
    // A directory needs a block of its own; few are left at most.
    let mut count = 0_u32;
    let full = loop {
        match volumes.make_directory(&id, &at(&format!("d{count}")), FORCED).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.path_kind(), Some(io::ErrorKind::StorageFull), "after {count}: {full}");
    assert_eq!(kind(volumes.write_entry(&id, &at("new/file"), FORCED).await), io::ErrorKind::StorageFull);
    volumes.remove_entry(&id, &at("filling")).await.unwrap();
    volumes.make_directory(&id, &at("again"), FORCED).await.unwrap();
    volumes.settle(std::collections::BTreeSet::new()).await;
    volumes.remove(&id).await.unwrap();
}
