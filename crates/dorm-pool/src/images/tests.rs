use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::Image;
use crate::error::PoolError;
use crate::pool::Pool;
use crate::steps::armed::{Armed, Ending};
use crate::steps::{Step, Steps};
use dorm_guest_ids::GuestIds;
use dorm_steps::{AnySteps, pass};

const GUEST_ID_BASE: u32 = GuestIds::DEFAULT.base();

fn home() -> (TempDir, Pool) {
    let home = tempfile::tempdir().unwrap();
    let pool = Pool::open(&home.path().join("data"), &home.path().join("images")).unwrap();
    (home, pool)
}

async fn import(pool: &Pool, source: &Path) -> Result<Image, PoolError> {
    pool.import(source, Some("base"), |_| {}).await
}

/// One entry of an archive that a test assembles byte by byte, valid or not.
#[derive(Clone, Debug)]
struct Entry {
    kind: EntryType,
    path: Vec<u8>,
    link: Vec<u8>,
    content: Vec<u8>,
    mode: u32,
    owner: u64,
}

fn entry(kind: EntryType, path: &str) -> Entry {
    Entry { kind, path: path.into(), link: Vec::new(), content: Vec::new(), mode: 0o755, owner: 0 }
}

fn file(path: &str, content: &str) -> Entry {
    Entry { content: content.into(), ..entry(EntryType::Regular, path) }
}

fn link(kind: EntryType, path: &str, to: &str) -> Entry {
    Entry { link: to.into(), ..entry(kind, path) }
}

fn header(entry: &Entry) -> Header {
    let mut header = Header::new_gnu();
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..entry.path.len()].copy_from_slice(&entry.path);
    gnu.linkname[..entry.link.len()].copy_from_slice(&entry.link);
    header.set_entry_type(entry.kind);
    header.set_mode(entry.mode);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    header.set_mtime(1_000_000_000);
    header.set_size(entry.content.len() as u64);
    header.set_cksum();
    header
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        builder.append(&header(entry), &entry.content[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

fn write(home: &TempDir, content: &[u8]) -> std::path::PathBuf {
    let path = home.path().join("source.tar");
    fs::write(&path, content).unwrap();
    path
}

fn left(home: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(home.path().join("images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "tags" && name != ".lock" && name != "layers")
        .collect();
    names.sort();
    names
}

fn sample() -> Vec<Entry> {
    vec![
        entry(EntryType::Directory, "./"),
        entry(EntryType::Directory, "./usr/"),
        entry(EntryType::Directory, "./usr/bin/"),
        link(EntryType::Symlink, "./bin", "usr/bin"),
        Entry { mode: 0o4755, ..file("./usr/bin/sudo", "sudo") },
        Entry { owner: 1000, mode: 0o600, ..file("./home/user/.profile", "hello") },
        link(EntryType::Link, "./bin/su", "./usr/bin/sudo"),
        entry(EntryType::Fifo, "./run/pipe"),
        entry(EntryType::Char, "./dev/null"),
        link(EntryType::Symlink, "./etc/absolute", "/usr/bin/sudo"),
    ]
}

#[tokio::test]
async fn an_archive_becomes_an_image_with_shifted_owners_and_everything_a_run_needs() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    assert_eq!(image.tags, ["base"]);
    let facts = |path: &str| image.rootfs.join(path).symlink_metadata().unwrap();
    let sudo = facts("usr/bin/sudo");
    assert_eq!((sudo.mode() & 0o7777, sudo.uid(), sudo.gid()), (0o4755, GUEST_ID_BASE, GUEST_ID_BASE));
    assert_eq!((sudo.nlink(), sudo.ino()), (2, facts("usr/bin/su").ino()));
    assert_eq!(sudo.mtime(), 1_000_000_000);
    let profile = facts("home/user/.profile");
    assert_eq!((profile.mode() & 0o7777, profile.uid(), profile.len()), (0o600, GUEST_ID_BASE + 1000, 5));
    assert!(facts("bin").is_symlink());
    assert!(!image.rootfs.join("dev/null").exists());
    assert_eq!(facts("home").uid(), GUEST_ID_BASE, "directories that the archive does not name");
    for directory in ["proc", "sys", "dev", "tmp", "run", "etc/dormouse/on-resume.d"] {
        assert!(facts(directory).is_dir(), "{directory}");
        assert_eq!(facts(directory).uid(), GUEST_ID_BASE, "{directory}");
    }
    let agent = facts("dorm-agent");
    assert_eq!((agent.len(), agent.mode() & 0o7777), (0, 0o755));
    assert_eq!(pool.verify_image(&image.digest).await.unwrap(), image);
}

#[tokio::test]
async fn guests_can_pass_to_the_image_and_ordinary_users_cannot() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    for directory in [home.path().join("images"), image.rootfs.parent().unwrap().to_owned()] {
        let facts = fs::metadata(directory).unwrap();
        assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o777), (0, GUEST_ID_BASE, 0o710));
    }
}

#[tokio::test]
async fn a_closed_directory_above_the_images_is_named() {
    let (home, pool) = home();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(pool.closed_to_guests(), None);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(pool.closed_to_guests(), Some(home.path().to_owned()));
}

#[tokio::test]
async fn the_same_content_is_the_same_image_whatever_it_came_in() {
    let (home, pool) = home();
    let plain = archive(&sample());
    let first = import(&pool, &write(&home, &plain)).await.unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).unwrap();
    assert_eq!(import(&pool, &write(&home, &packed.finish().unwrap())).await.unwrap(), first);
    let mut reversed = sample();
    reversed[5..].reverse();
    reversed.iter_mut().for_each(|entry| entry.mode &= 0o7777);
    assert_eq!(import(&pool, &write(&home, &archive(&reversed))).await.unwrap(), first);
    assert_eq!(left(&home), [first.digest.to_string()]);
}

#[tokio::test]
async fn a_directory_gives_the_same_image_as_its_archive() {
    let (home, pool) = home();
    let source = home.path().join("source");
    fs::create_dir_all(source.join("usr/bin")).unwrap();
    fs::write(source.join("usr/bin/sudo"), "sudo").unwrap();
    fs::set_permissions(source.join("usr/bin/sudo"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(source.join("usr/bin/sudo"), source.join("usr/bin/su")).unwrap();
    symlink("usr/bin", source.join("bin")).unwrap();
    for directory in ["", "usr", "usr/bin"] {
        fs::set_permissions(source.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let from_directory = import(&pool, &source).await.unwrap();
    let entries = [
        entry(EntryType::Directory, "./"),
        entry(EntryType::Directory, "usr/"),
        entry(EntryType::Directory, "usr/bin"),
        Entry { mode: 0o4755, ..file("usr/bin/su", "sudo") },
        link(EntryType::Link, "usr/bin/sudo", "usr/bin/su"),
        link(EntryType::Symlink, "bin", "usr/bin"),
    ];
    assert_eq!(import(&pool, &write(&home, &archive(&entries))).await.unwrap(), from_directory);
}

#[tokio::test]
async fn every_difference_that_matters_is_another_image() {
    let (home, pool) = home();
    let mut digests = Vec::new();
    let changes: [fn(&mut Vec<Entry>); 6] = [
        |_| {},
        |entries| entries[5].content = b"Hello".to_vec(),
        |entries| entries[5].mode = 0o644,
        |entries| entries[5].owner = 1001,
        |entries| entries[9].link = b"/usr/bin/su".to_vec(),
        |entries| entries[6] = Entry { mode: 0o4755, ..file("./usr/bin/su", "sudo") },
    ];
    for change in changes {
        let mut entries = sample();
        change(&mut entries);
        digests.push(import(&pool, &write(&home, &archive(&entries))).await.unwrap().digest);
    }
    let images = pool.images().await.unwrap();
    assert_eq!(images.len(), digests.len());
    assert_eq!(images.iter().filter(|image| image.tags == ["base"]).count(), 1, "the tag has moved on");
    assert_eq!(pool.resolve("base").await.unwrap().digest, digests[5]);
}

#[tokio::test]
async fn hostile_and_broken_sources_are_refused_and_leave_nothing() {
    let too_large = Entry { content: vec![b'x'; 5 << 20], kind: EntryType::GNULongName, ..file("././@LongLink", "") };
    let mut sound = archive(&sample());
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("leads out of the image", archive(&[file("../escape", "")])),
        ("leads out of the image", archive(&[file("a/../../escape", "")])),
        ("leads out of the image", archive(&[link(EntryType::Link, "a", "../../etc/passwd")])),
        ("hard link to a missing file", archive(&[link(EntryType::Link, "a", "etc/passwd")])),
        ("does not precede it", archive(&[file("etc/a", ""), link(EntryType::Link, "a", "etc/passwd")])),
        ("hard link to the root", archive(&[link(EntryType::Link, "a", "/")])),
        ("device outside of /dev", archive(&[entry(EntryType::Block, "disk")])),
        ("device outside of /dev", archive(&[entry(EntryType::Char, "devil/null")])),
        ("belongs to ID 65536", archive(&[Entry { owner: 65_536, ..file("a", "") }])),
        ("empty, too long", archive(&[entry(EntryType::Symlink, "a")])),
        ("unknown type", archive(&[entry(EntryType::new(b'Z'), "a")])),
        ("cannot replace", archive(&[file("a/b", ""), file("a", "")])),
        ("is the root of the image", archive(&[file("./.", "x")])),
        ("cannot be entered", archive(&[file("a", ""), file("a/b", "")])),
        ("not a valid tar archive", archive(&[too_large, file("a", "")])),
        ("it is empty", archive(&[])),
        ("truncated", Vec::new()),
        ("truncated", sound[..sound.len() - 1024].to_vec()),
        ("not a valid tar archive", vec![b'x'; 2048]),
        ("not a valid tar archive", vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0]),
        ("cannot", {
            sound.truncate(512 * 6 + 100);
            sound
        }),
    ];
    for (expected, content) in rows {
        let (home, pool) = home();
        let error = import(&pool, &write(&home, &content)).await.expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(left(&home), [""; 0], "{expected}");
        assert!(!home.path().join("escape").exists());
    }
}

#[tokio::test]
async fn links_that_lead_out_end_up_inside() {
    let (home, pool) = home();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let entries = [
        link(EntryType::Symlink, "absolute", outside.to_str().unwrap()),
        link(EntryType::Symlink, "up", "../../../../outside"),
        link(EntryType::Symlink, "etc", "/"),
        file("absolute/a", "1"),
        file("up/b", "2"),
        file("etc/c", "3"),
        file("c", "4"),
    ];
    let error = import(&pool, &write(&home, &archive(&entries))).await.unwrap_err();
    assert!(matches!(&error, PoolError::Entry { entry, .. } if entry == "absolute/a"), "{error}");
    let image = import(&pool, &write(&home, &archive(&entries[5..]))).await.unwrap();
    assert_eq!(fs::read_to_string(image.rootfs.join("etc/c")).unwrap(), "3");
    let image = import(&pool, &write(&home, &archive(&[&entries[2..3], &entries[5..]].concat()))).await.unwrap();
    assert_eq!(fs::read_to_string(image.rootfs.join("c")).unwrap(), "4");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[tokio::test]
async fn bad_tags_and_missing_sources_change_nothing() {
    let (home, pool) = home();
    let source = write(&home, &archive(&sample()));
    for tag in ["", ".new", "../x", "a//b", "/a", "a/", "a/../b", "a%2Fb", "ä", &"a".repeat(129)] {
        assert!(matches!(pool.import(&source, Some(tag), |_| {}).await, Err(PoolError::Tag(_))), "{tag}");
    }
    assert!(matches!(import(&pool, Path::new("/does/not/exist")).await, Err(PoolError::Source { .. })));
    assert!(matches!(import(&pool, Path::new("/dev/null")).await, Err(PoolError::Source { .. })));
    assert_eq!(left(&home), [""; 0]);
}

#[tokio::test]
async fn references_are_tags_digests_or_long_enough_beginnings() {
    let (home, pool) = home();
    match pool.resolve("base").await {
        Err(PoolError::NoImage { available, .. }) => assert_eq!(available, [""; 0]),
        other => panic!("{other:?}"),
    }
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    let digest = image.digest.to_string();
    for reference in ["base", &digest, &digest[..8]] {
        assert_eq!(pool.resolve(reference).await.unwrap(), image, "{reference}");
    }
    for reference in ["bas", &digest[..7], "", "..", "0000000g"] {
        match pool.resolve(reference).await {
            Err(PoolError::NoImage { available, .. }) => assert_eq!(available, ["base"], "{reference}"),
            other => panic!("{other:?}"),
        }
    }
    let twin = format!("{}{}", &digest[..10], "0".repeat(54));
    fs::create_dir(home.path().join("images").join(twin)).unwrap();
    assert!(
        matches!(pool.resolve(&digest[..10]).await, Err(PoolError::Ambiguous { matches, .. }) if matches.len() == 2)
    );
}

#[tokio::test]
async fn a_changed_image_is_noticed() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    fs::write(image.rootfs.join("usr/bin/sudo"), "sudX").unwrap();
    assert!(matches!(pool.verify_image(&image.digest).await, Err(PoolError::DamagedImage { .. })));
}

fn damage_of(result: Result<Image, PoolError>) -> (String, String) {
    match result.unwrap_err() {
        PoolError::DamagedImage { file, what, .. } => (file.display().to_string(), what),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_file_that_is_damaged_is_named_whatever_has_become_of_it() {
    type Damage = fn(&Path);
    let rows: [(&str, Damage, &str, &str); 6] = [
        (
            "content",
            |root| fs::write(root.join("usr/bin/sudo"), "sudX").unwrap(),
            "rootfs/usr/bin/su",
            "differs from the imported file",
        ),
        (
            "cut",
            |root| fs::write(root.join("home/user/.profile"), "").unwrap(),
            "rootfs/home/user/.profile",
            "differs from the imported file",
        ),
        ("gone", |root| fs::remove_file(root.join("etc/absolute")).unwrap(), "rootfs/etc/absolute", "is missing"),
        ("more", |root| fs::write(root.join("etc/b c%"), "").unwrap(), "rootfs/etc/b c%", "was not imported"),
        (
            "mode",
            |root| fs::set_permissions(root.join("usr"), fs::Permissions::from_mode(0o700)).unwrap(),
            "rootfs/usr",
            "differs from the imported file",
        ),
        ("tree", |root| fs::remove_dir_all(root.join("home")).unwrap(), "rootfs/home", "is missing"),
    ];
    for (name, damage, file, what) in rows {
        let (home, pool) = home();
        let source = write(&home, &archive(&sample()));
        let image = import(&pool, &source).await.unwrap();
        assert_eq!(pool.sound_image(&image.digest).await.unwrap(), image);
        damage(&image.rootfs);
        assert_eq!(pool.sound_image(&image.digest).await.unwrap(), image, "{name}: it is read once");
        let found = damage_of(pool.verify_image(&image.digest).await);
        assert_eq!(found, (file.to_owned(), what.to_owned()), "{name}");
        assert_eq!(damage_of(pool.sound_image(&image.digest).await), found, "{name}: it is not served any more");
        // Another process finds it at its first use.
        let again = Pool::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        assert_eq!(damage_of(again.sound_image(&image.digest).await), found, "{name}");
        let inode = |path: &str| fs::metadata(image.rootfs.join(path)).unwrap().ino();
        let untouched = inode("run/pipe");
        assert_eq!(import(&again, &source).await.unwrap().digest, image.digest, "{name}: importing it again mends it");
        again.verify_image(&image.digest).await.unwrap();
        assert_eq!(inode("run/pipe"), untouched, "{name}: what was sound stays");
        assert_eq!(inode("usr/bin/sudo"), inode("usr/bin/su"), "{name}");
        assert!(left(&home).iter().all(|name| !name.starts_with('.')), "{name}: {:?}", left(&home));
    }
}

#[tokio::test]
async fn an_image_of_an_earlier_version_gets_its_list_of_files_when_it_is_first_read() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    let list = home.path().join("images").join(image.digest.as_str()).join("files.list");
    let text = fs::read(&list).unwrap();
    let cut = text.get(..text.len() - 20).unwrap();
    for before in [None, Some(&b"nonsense"[..])] {
        match before {
            None => fs::remove_file(&list).unwrap(),
            Some(nonsense) => fs::write(&list, nonsense).unwrap(),
        }
        let pool = Pool::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        assert_eq!(pool.sound_image(&image.digest).await.unwrap(), image);
        assert_eq!(fs::read(&list).unwrap(), text);
    }
    // An incomplete list names nothing, and hides nothing.
    fs::write(&list, cut).unwrap();
    assert_eq!(pool.verify_image(&image.digest).await.unwrap(), image);
    // An image that is already damaged gets no list, which would record the damage as original.
    fs::remove_file(&list).unwrap();
    fs::write(image.rootfs.join("usr/bin/sudo"), "sudX").unwrap();
    let (file, what) = damage_of(pool.verify_image(&image.digest).await);
    assert_eq!(file, "rootfs/");
    assert!(what.contains("does not match the imported files"), "{what}");
    assert!(!list.exists());
}

#[tokio::test]
async fn everything_on_the_disk_is_checked_at_a_pace_and_what_is_damaged_is_named() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    let all = pool.stored().await.unwrap();
    assert_eq!(all, [crate::Stored::Image(image.digest.clone())]);
    let pace = crate::Pace::new(1 << 30);
    let checked = pool.check_stored(&all[0], Some(&pace)).await.unwrap().unwrap();
    assert_eq!((checked.bytes, checked.damaged.len()), (image.bytes, 0));
    fs::write(image.rootfs.join("usr/bin/sudo"), "sudX").unwrap();
    fs::write(image.rootfs.join("home/user/.profile"), "hellX").unwrap();
    let checked = pool.check_stored(&all[0], Some(&pace)).await.unwrap().unwrap();
    let files: Vec<_> = checked.damaged.iter().map(|damaged| damaged.file.display().to_string()).collect();
    assert_eq!(files, ["rootfs/home/user/.profile", "rootfs/usr/bin/su"]);
    pace.stop();
    assert!(pool.check_stored(&all[0], Some(&pace)).await.is_err(), "it was stopped, which says nothing about it");
    pool.remove_image(&image.digest, &[]).await.unwrap();
    assert_eq!(pool.check_stored(&all[0], None).await.unwrap(), None);
}

#[tokio::test]
async fn removing_an_image_takes_its_tags_along_and_may_be_repeated() {
    let (home, pool) = home();
    let image = import(&pool, &write(&home, &archive(&sample()))).await.unwrap();
    pool.remove_image(&image.digest, &[]).await.unwrap();
    pool.remove_image(&image.digest, &[]).await.unwrap();
    assert!(matches!(pool.image(&image.digest).await, Err(PoolError::NoImage { .. })));
    assert_eq!(fs::read_dir(home.path().join("images/tags")).unwrap().count(), 0);
    assert_eq!(left(&home), [""; 0]);
}

#[tokio::test]
async fn whatever_step_of_an_import_fails_there_is_a_sound_image_or_none() {
    for step in [Step::Unpacked, Step::Listed, Step::ImageSynced, Step::Published] {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let steps = Armed::new();
            let open = |steps: AnySteps| {
                Pool::open_with(&home.path().join("data"), &home.path().join("images"), steps).unwrap()
            };
            let pool = open(steps.clone());
            let source = write(&home, &archive(&sample()));
            steps.arm(step, ending);
            import(&pool, &source).await.unwrap_err();
            let pool = if ending == Ending::Dies { open(pass()) } else { pool };
            for image in pool.images().await.unwrap() {
                pool.verify_image(&image.digest).await.unwrap();
            }
            assert!(left(&home).iter().all(|name| !name.starts_with('.')), "{step:?} {ending:?}: {:?}", left(&home));
            let image = import(&pool, &source).await.unwrap();
            assert_eq!(pool.resolve("base").await.unwrap(), image);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_of_one_source_at_once_all_succeed() {
    let home = tempfile::tempdir().unwrap();
    let source = write(&home, &archive(&sample()));
    // Separate pools: between processes only the locks on the disk count.
    let imports: Vec<_> = (0..6)
        .map(|number| {
            let pool = Pool::open(&home.path().join(format!("data{number}")), &home.path().join("images")).unwrap();
            let source = source.clone();
            tokio::spawn(async move { import(&pool, &source).await.unwrap() })
        })
        .collect();
    let mut digests = Vec::new();
    for import in imports {
        digests.push(import.await.unwrap().digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1);
    assert_eq!(left(&home), [digests[0].to_string()]);
}

mod bombs;
mod bundles;
mod layers;
mod liars;
mod owners;
mod references;
mod seeds;

mod hostile {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// The same cases on every run, so that a build only fails because of a change. To search for
    /// new ones, raise the number with `PROPTEST_CASES`.
    pub(super) fn cases() -> u32 {
        std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
    }

    fn paths() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            8 => prop::sample::select(vec!["a", "b", "c", "etc", "dev", "tmp", "proc", "dorm-agent"]),
            1 => Just(".."),
            1 => Just("."),
        ];
        (prop::bool::weighted(0.2), prop::collection::vec(part, 1..4))
            .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
    }

    pub(super) fn entries() -> impl Strategy<Value = Entry> {
        let target = prop_oneof![
            4 => paths(),
            1 => Just("../../../../../../OUTSIDE".to_owned()),
            1 => Just("/OUTSIDE".to_owned()),
            1 => Just("/".to_owned()),
            1 => Just("/proc/self/root".to_owned()),
        ];
        let kind = prop::sample::select(vec![
            EntryType::Regular,
            EntryType::Regular,
            EntryType::Directory,
            EntryType::Symlink,
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Fifo,
            EntryType::Char,
        ]);
        (kind, paths(), target, 0u32..0o10000).prop_map(|(kind, path, target, mode)| Entry {
            kind,
            content: if kind == EntryType::Regular { b"content".to_vec() } else { Vec::new() },
            link: target.into_bytes(),
            mode,
            ..entry(kind, &path)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, rng_seed: RngSeed::Fixed(20_261_122), ..ProptestConfig::default() })]

        #[test]
        fn nothing_outside_is_touched(mut entries in prop::collection::vec(entries(), 1..12)) {
            let home = tempfile::tempdir().unwrap();
            let outside = home.path().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("a"), "untouched").unwrap();
            for entry in &mut entries {
                let link = String::from_utf8(entry.link.clone()).unwrap();
                let link = link.replace("/OUTSIDE", outside.to_str().unwrap());
                entry.link = link.into_bytes();
                entry.link.truncate(100);
            }
            let images = home.path().join("images");
            let pool = super::super::Images::open(images, GuestIds::DEFAULT, Steps(pass())).unwrap();
            let source = write(&home, &archive(&entries));
            let result = pool.import(&source, None, None, &|_| {});
            prop_assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "untouched");
            prop_assert_eq!(fs::metadata(outside.join("a")).unwrap().uid(), 0);
            prop_assert_eq!(fs::metadata(outside.join("a")).unwrap().nlink(), 1);
            prop_assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
            prop_assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3);
            match result {
                Ok(image) => {
                    prop_assert_eq!(left(&home), [image.digest.to_string()]);
                    pool.verify(&image.digest).unwrap();
                }
                Err(PoolError::Entry { .. }) => prop_assert_eq!(left(&home), [""; 0]),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }

        #[test]
        fn random_bytes_are_no_archive(bytes in prop::collection::vec(any::<u8>(), 0..3000), at in 0usize..6000, flip in 1u8..) {
            let home = tempfile::tempdir().unwrap();
            let pool = super::super::Images::open(home.path().join("images"), GuestIds::DEFAULT, Steps(pass())).unwrap();
            let result = pool.import(&write(&home, &bytes), None, None, &|_| {});
            prop_assert!(result.is_err());
            let mut changed = archive(&sample());
            let length = changed.len();
            changed[at % length] ^= flip;
            // Whatever the result: no panic, and no partial import.
            let _ = pool.import(&write(&home, &changed), None, None, &|_| {});
            prop_assert!(left(&home).iter().all(|name| !name.starts_with('.')));
        }
    }
}
