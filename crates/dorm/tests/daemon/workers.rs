//! Untrusted data is parsed by workers of the real program: with the same outcome as in one
//! process, and without harm to the daemon.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dorm_storage::{Storage, StorageError};
use dorm_testing::{signal, until};
use dorm_worker::Program;
use rustix::process::Signal;

use crate::place::{PATIENCE, Place};

const USER: u32 = dorm_guest_ids::GuestIds::DEFAULT.base() + dorm_guest_ids::GuestIds::COUNT - 1;

/// A storage whose archives are parsed by workers.
fn by_workers(home: &Path) -> Storage {
    let program = Program::new(Path::new(env!("CARGO_BIN_EXE_dorm")), &[dorm_worker::NAME], USER);
    Storage::open(&home.join("data"), &home.join("images")).unwrap().read_by(program)
}

fn in_process(home: &Path) -> Storage {
    Storage::open(&home.join("own/data"), &home.join("own/images")).unwrap()
}

fn run(program: &str, arguments: &[&str], directory: &Path) {
    let status = Command::new(program).args(arguments).current_dir(directory).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// The header of an entry that belongs to root.
fn header(path: &str, kind: tar::EntryType, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    header
}

/// A directory of files of every kind, and archives of it in each format.
fn sources(home: &Path) -> Vec<PathBuf> {
    let root = home.join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::write(root.join("usr/bin/tool"), vec![7; 300_000]).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    File::create(root.join("zeros")).unwrap().set_len(5 << 20).unwrap();
    fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/other")).unwrap();
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
    run("mkfifo", &["pipe"], &root);
    for number in 0..500 {
        fs::write(root.join(format!("usr/file-{number}")), format!("content {number}")).unwrap();
    }
    run("tar", &["-cf", "root.tar", "-C", "root", "."], home);
    run("tar", &["-cf", "sparse.tar", "--format=gnu", "--sparse", "-C", "root", "."], home);
    run("gzip", &["-1", "-k", "root.tar"], home);
    let tar = fs::read(home.join("root.tar")).unwrap();
    fs::write(home.join("root.tar.zst"), zstd::encode_all(&tar[..], 1).unwrap()).unwrap();
    ["root", "root.tar", "sparse.tar", "root.tar.gz", "root.tar.zst"].map(|name| home.join(name)).to_vec()
}

fn left(home: &Path) -> Vec<String> {
    let of = |path: PathBuf| {
        fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let names = of(home.join("images")).chain(of(home.join("images/layers")));
    names.filter(|name| !["tags", ".lock", "layers"].contains(&&name[..])).collect()
}

#[tokio::test]
async fn workers_find_in_every_archive_what_this_process_finds() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (workers, own) = (by_workers(home.path()), in_process(home.path()));
    for source in sources(home.path()) {
        let expected = own.import(&source, Some("x"), |_| {}).await.unwrap();
        let found = workers.import(&source, Some("x"), |_| {}).await.unwrap();
        assert_eq!((found.digest, found.bytes), (expected.digest, expected.bytes), "{}", source.display());
    }
    // The same image as an archive of a layout, plain and compressed.
    let image = own.resolve("x").await.unwrap();
    let layout = home.path().join("layout.tar");
    own.export_image(&image.digest, &layout).await.unwrap();
    run("gzip", &["-1", "-k", "layout.tar"], home.path());
    let tar = fs::read(&layout).unwrap();
    fs::write(home.path().join("layout.tar.zst"), zstd::encode_all(&tar[..], 1).unwrap()).unwrap();
    for name in ["layout.tar", "layout.tar.gz", "layout.tar.zst"] {
        let source = home.path().join(name);
        let expected = own.import(&source, Some("y"), |_| {}).await.unwrap();
        let found = workers.import(&source, Some("y"), |_| {}).await.unwrap();
        assert_eq!((&found.digest, &found.layers), (&expected.digest, &expected.layers), "{name}");
        workers.verify_image(&found.digest).await.unwrap();
        // The next import unpacks the layer again.
        workers.remove_image(&found.digest, &[]).await.unwrap();
        own.remove_image(&expected.digest, &[]).await.unwrap();
    }
}

#[tokio::test]
async fn workers_refuse_what_this_process_refuses_and_say_why() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (workers, own) = (by_workers(home.path()), in_process(home.path()));
    sources(home.path());
    let tar = fs::read(home.path().join("root.tar")).unwrap();
    let packed = fs::read(home.path().join("root.tar.gz")).unwrap();
    let mut climbs = tar.clone();
    climbs.splice(0..0, header("../../shadow", tar::EntryType::Regular, 0).as_bytes().iter().copied());
    let mut device = tar.clone();
    device.splice(0..0, header("sda", tar::EntryType::Block, 0).as_bytes().iter().copied());
    let bad = [
        ("climbs", climbs),
        ("device", device),
        ("cut", tar[..tar.len() / 2].to_vec()),
        ("unmarked", tar[..512].to_vec()),
        ("nonsense", vec![b'x'; 100_000]),
        ("empty", Vec::new()),
    ];
    let text = |error: StorageError| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    };
    for (name, content) in bad {
        let source = home.path().join("bad");
        fs::write(&source, content).unwrap();
        let expected = text(own.import(&source, None, |_| {}).await.unwrap_err());
        let found = text(workers.import(&source, None, |_| {}).await.unwrap_err());
        assert_eq!(found, expected, "{name}");
        assert_eq!(left(home.path()), [""; 0], "{name}");
    }
    // Data that cannot be decompressed gives an error that says so.
    for content in [packed[..packed.len() / 2].to_vec(), [&packed[..5000], &[0; 5000][..]].concat()] {
        let source = home.path().join("bad");
        fs::write(&source, content).unwrap();
        let error = text(workers.import(&source, None, |_| {}).await.unwrap_err());
        assert!(error.contains("it cannot be decompressed") || error.contains("stream"), "{error}");
        assert_eq!(left(home.path()), [""; 0]);
    }
}

/// The workers of a process.
fn workers_of(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|text| text.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect();
    let is_worker = |id: &u32| fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| has(&line, b"\0worker\0"));
    children.into_iter().filter(is_worker).collect()
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The peak memory of a process, in bytes.
fn most_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Runs `dorm image import`; returns whether it succeeded, and its output.
async fn import(place: &Place, source: &Path) -> (bool, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(["image", "import"]).arg(source).args(["--tag", "attack"]).env("DORM_DATA", place.daemon().data());
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An archive that takes long enough to read that the test can act meanwhile: half a gigabyte that
/// uses no space.
fn long(place: &Place) -> PathBuf {
    let source = place.directory().join("long.tar");
    let file = File::create(&source).unwrap();
    file.write_all_at(header("zeros", tar::EntryType::Regular, 512 << 20).as_bytes(), 0).unwrap();
    file.set_len((512 << 20) + 1536).unwrap();
    source
}

#[tokio::test]
async fn a_killed_worker_is_an_error_of_its_import_alone() {
    let place = Place::without_images();
    let daemon = place.daemon().pid();
    let source = long(&place);
    let kill = async {
        until(PATIENCE, "a worker reads it", || async {
            Ok(workers_of(daemon).iter().any(|worker| signal(*worker, Signal::KILL).is_ok()))
        })
        .await
        .unwrap();
    };
    let ((imported, said), ()) = tokio::join!(import(&place, &source), kill);
    assert!(!imported && said.contains("worker") && said.contains("signal: 9"), "{said}");
    let images = place.daemon().get("/images").await.unwrap();
    assert!(!images.to_string().contains("attack"), "{images}");
    assert_eq!(workers_of(daemon), [0; 0]);
    let (imported, said) = import(&place, &source).await;
    assert!(imported, "{said}");
    // It is not an image that a sandbox could start from.
    place.end(&["cannot create a warm container"]).await;
}

#[tokio::test]
async fn an_archive_that_asks_for_gigabytes_takes_them_of_its_worker() {
    let place = Place::without_images();
    let daemon = place.daemon().pid();
    let before = most_memory(daemon);
    // An archive that may be an image, with extended headers of two gigabytes that its reader
    // keeps.
    let source = place.directory().join("headers.tar");
    let mut file = File::create(&source).unwrap();
    file.write_all(header("oci-layout", tar::EntryType::XHeader, 2 << 30).as_bytes()).unwrap();
    file.set_len((2 << 30) + 4096).unwrap();
    let (imported, said) = import(&place, &source).await;
    assert!(!imported && said.contains("cannot import"), "{said}");
    let grown = most_memory(daemon) - before;
    assert!(grown < 64 << 20, "the daemon took {grown} bytes for it");
    assert_eq!(workers_of(daemon), [0; 0]);
    place.end(&[]).await;
}

#[tokio::test]
async fn workers_end_with_their_daemon_and_the_next_one_clears_what_they_were_read_for() {
    let mut place = Place::without_images();
    let daemon = place.daemon().pid();
    let source = long(&place);
    let met = async {
        let mut workers = Vec::new();
        until(PATIENCE, "a worker reads it", || {
            workers = workers_of(daemon);
            let is_met = !workers.is_empty();
            async move { Ok(is_met) }
        })
        .await
        .unwrap();
        signal(daemon, Signal::KILL).unwrap();
        workers
    };
    let ((imported, _), workers) = tokio::join!(import(&place, &source), met);
    assert!(!imported);
    let are_gone = || async {
        let is_here =
            |worker: &u32| fs::read(format!("/proc/{worker}/cmdline")).is_ok_and(|line| has(&line, b"\0worker\0"));
        Ok(!workers.iter().any(is_here))
    };
    until(PATIENCE, "the workers are gone", are_gone).await.unwrap();
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    fs::write(place.directory().join("small"), "").unwrap();
    let (imported, said) = import(&place, &place.directory().join("small")).await;
    assert!(!imported, "{said}");
    let images = fs::read_dir(place.daemon().images()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = images.filter(|name| name.to_string_lossy().starts_with(".import")).collect();
    assert!(left.is_empty(), "{left:?}");
    place.end(&[]).await;
}
