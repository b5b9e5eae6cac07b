//! Images with layers: their changes, and possible defects.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tar::EntryType;
use tempfile::TempDir;

use super::{Entry, archive, entry, file, header, home, import, left, link};
use crate::error::StorageError;
use crate::images::Image;
use crate::images::documents::{BlobDigest, Packing};
use crate::reread;
use crate::steps::Step;
use crate::steps::armed::{Armed, Ending, InPlace};
use crate::storage::Storage;

pub(super) fn sum(content: &[u8]) -> BlobDigest {
    BlobDigest::from_bytes(&Sha256::digest(content))
}

pub(super) fn pack(packing: Packing, content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match packing {
        Packing::Plain => content.to_vec(),
        Packing::Gzip => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(content).unwrap();
            packed.finish().unwrap()
        }
        Packing::Zstd => zstd::stream::encode_all(content, 1).unwrap(),
    }
}

/// An OCI layout that a test assembles.
pub(super) struct Layout {
    pub(super) path: PathBuf,
    pub(super) layers: Vec<(BlobDigest, u64, &'static str)>,
    pub(super) diff_ids: Vec<BlobDigest>,
    pub(super) settings: &'static str,
}

impl Layout {
    pub(super) fn new(home: &TempDir) -> Self {
        let path = home.path().join("layout");
        fs::create_dir_all(path.join("blobs/sha256")).unwrap();
        Self { path, layers: Vec::new(), diff_ids: Vec::new(), settings: "{}" }
    }

    pub(super) fn blob(&self, content: &[u8]) -> BlobDigest {
        let digest = sum(content);
        fs::write(self.path.join("blobs/sha256").join(digest.hex()), content).unwrap();
        digest
    }

    pub(super) fn layer(mut self, packing: Packing, content: &[u8]) -> Self {
        let packed = pack(packing, content);
        let kind = match packing {
            Packing::Plain => "application/vnd.oci.image.layer.v1.tar",
            Packing::Gzip => "application/vnd.docker.image.rootfs.diff.tar.gzip",
            Packing::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        };
        self.layers.push((self.blob(&packed), packed.len() as u64, kind));
        self.diff_ids.push(sum(content));
        self
    }

    /// Writes configuration, manifest and index.
    pub(super) fn write(&self) -> BlobDigest {
        let ids: Vec<_> = self.diff_ids.iter().map(|id| format!("\"{id}\"")).collect();
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            self.settings,
            ids.join(",")
        );
        let described = |digest: &BlobDigest, size: u64, kind: &str| {
            format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":{size}}}"#)
        };
        let layers: Vec<_> = self.layers.iter().map(|(digest, size, kind)| described(digest, *size, kind)).collect();
        let config =
            described(&self.blob(config.as_bytes()), config.len() as u64, "application/vnd.oci.image.config.v1+json");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        let digest = self.blob(manifest.as_bytes());
        let entry = described(&digest, manifest.len() as u64, "application/vnd.oci.image.manifest.v1+json");
        fs::write(self.path.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{entry}]}}"#)).unwrap();
        fs::write(self.path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        digest
    }
}

fn directory(path: &str) -> Entry {
    entry(EntryType::Directory, path)
}

/// An image of plain layers.
async fn layered(home: &TempDir, storage: &Storage, layers: &[&[Entry]]) -> Result<Image, StorageError> {
    let mut layout = Layout::new(home);
    for entries in layers {
        layout = layout.layer(Packing::Plain, &archive(entries));
    }
    layout.write();
    import(storage, &layout.path).await
}

/// The same as one root file system.
async fn flat(home: &TempDir, storage: &Storage, entries: &[Entry]) -> Image {
    let path = home.path().join("flat.tar");
    fs::write(&path, archive(entries)).unwrap();
    import(storage, &path).await.unwrap()
}

fn names(image: &Image, path: &str) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(image.rootfs.join(path))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn text(image: &Image, path: &str) -> String {
    fs::read_to_string(image.rootfs.join(path)).unwrap()
}

pub(super) fn layer_names(home: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(home.path().join("images/layers"))
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.retain(|name: &String| name != ".lock");
    names.sort();
    names
}

#[tokio::test]
async fn layers_are_stacked_in_order_and_what_they_remove_is_gone() {
    let (home, storage) = home();
    let lower = [
        directory("./"),
        directory("etc/"),
        file("etc/motd", "old"),
        file("etc/kept", "kept"),
        file("etc/removed", "x"),
        directory("opt/app/"),
        file("opt/app/one", "1"),
        directory("srv/whole/"),
        file("srv/whole/a", "a"),
        directory("srv/whole/deep/"),
        directory("srv/whole/deep/er/"),
        file("was-file", "x"),
        directory("was-directory/"),
        file("was-directory/inside", "x"),
    ];
    let upper = [
        directory("etc/"),
        file("etc/motd", "new"),
        file("etc/.wh.removed", ""),
        directory("opt/app/"),
        file("opt/app/.wh..wh.opq", ""),
        file("opt/app/two", "2"),
        file("srv/.wh.whole", ""),
        directory("was-file/"),
        file("was-file/inside", "y"),
        file("was-directory", "y"),
    ];
    let image = layered(&home, &storage, &[&lower, &upper]).await.unwrap();
    assert_eq!(names(&image, "etc"), ["dormouse", "kept", "motd"]);
    assert_eq!((text(&image, "etc/motd"), text(&image, "etc/kept")), ("new".into(), "kept".into()));
    assert_eq!(names(&image, "opt/app"), ["two"]);
    assert_eq!(names(&image, "srv"), [""; 0]);
    assert_eq!((text(&image, "was-file/inside"), text(&image, "was-directory")), ("y".into(), "y".into()));
    assert_eq!(image.layers.len(), 2);
}

#[tokio::test]
async fn an_image_in_layers_has_the_files_of_the_same_image_in_one_piece() {
    let (home, storage) = home();
    let lower = [directory("./"), directory("usr/"), directory("usr/bin/"), link(EntryType::Symlink, "bin", "usr/bin")];
    let sudo = Entry { mode: 0o4755, ..file("usr/bin/sudo", "sudo") };
    let owned = Entry { owner: 1000, mode: 0o600, ..file("usr/private", "hello") };
    let upper = [sudo.clone(), link(EntryType::Link, "usr/bin/su", "usr/bin/sudo"), owned.clone()];
    let image = layered(&home, &storage, &[&lower, &upper]).await.unwrap();
    let flat = flat(&home, &storage, &[&lower[..], &upper[..]].concat()).await;
    assert_ne!(image.digest, flat.digest, "settings count");
    let list = |image: &Image| super::super::listing::list(&image.rootfs, super::GuestIds::DEFAULT).unwrap().digest;
    assert_eq!(list(&image), list(&flat));
    storage.verify_image(&image.digest).await.unwrap();
}

#[tokio::test]
async fn what_layers_hold_is_stored_once_and_shared_by_images() {
    let (home, storage) = home();
    let base = [directory("./"), file("base", "shared by all")];
    let first = layered(&home, &storage, &[&base, &[file("one", "1")]]).await.unwrap();
    let second = layered(&home, &storage, &[&base, &[file("two", "2")]]).await.unwrap();
    assert_eq!(layer_names(&home).len(), 3);
    let inode = |image: &Image| fs::metadata(image.rootfs.join("base")).unwrap().ino();
    assert_eq!(inode(&first), inode(&second));
    storage.remove_image(&first.digest, &[]).await.unwrap();
    assert_eq!(layer_names(&home).len(), 2, "the layer of the removed image alone goes");
    storage.verify_image(&second.digest).await.unwrap();
    storage.remove_image(&second.digest, &[]).await.unwrap();
    assert_eq!(layer_names(&home), [""; 0]);
}

#[tokio::test]
async fn the_mount_points_of_one_image_change_no_layer() {
    let (home, storage) = home();
    let base = [directory("./"), file("dorm-agent", "the image has something of that name")];
    let image = layered(&home, &storage, &[&base]).await.unwrap();
    assert_eq!(text(&image, "dorm-agent"), "");
    let again = layered(&home, &storage, &[&base, &[file("more", "")]]).await.unwrap();
    assert_eq!(text(&again, "dorm-agent"), "");
    let layer = &image.layers[0];
    let kept = home.path().join("images/layers").join(layer).join("tree/dorm-agent");
    assert_eq!(fs::read_to_string(kept).unwrap(), "the image has something of that name");
}

#[tokio::test]
async fn an_implied_directory_leaves_the_one_below_as_it_is_and_follows_its_links() {
    let (home, storage) = home();
    let lower = [
        directory("./"),
        Entry { mode: 0o700, owner: 7, ..directory("home/") },
        directory("usr/"),
        directory("usr/lib/"),
        link(EntryType::Symlink, "lib", "usr/lib"),
        link(EntryType::Symlink, "opt", "/usr/lib"),
    ];
    let upper = [file("home/file", ""), file("lib/new", "linked"), directory("opt/"), file("opt/own", "not linked")];
    let image = layered(&home, &storage, &[&lower, &upper]).await.unwrap();
    let facts = fs::metadata(image.rootfs.join("home")).unwrap();
    assert_eq!((facts.mode() & 0o7777, facts.uid()), (0o700, super::GUEST_ID_BASE + 7));
    assert!(fs::symlink_metadata(image.rootfs.join("lib")).unwrap().is_symlink());
    assert_eq!(text(&image, "usr/lib/new"), "linked");
    assert!(fs::symlink_metadata(image.rootfs.join("opt")).unwrap().is_dir(), "a named directory replaces a link");
    assert_eq!(names(&image, "usr/lib"), ["new"]);
    let made = fs::metadata(&image.rootfs).unwrap();
    assert_eq!((made.mode() & 0o7777, made.uid()), (0o755, super::GUEST_ID_BASE));
}

#[tokio::test]
async fn a_hard_link_to_a_file_of_a_lower_layer_is_one() {
    let (home, storage) = home();
    let lower = [directory("./"), file("etc/a", "content")];
    let image = layered(&home, &storage, &[&lower, &[link(EntryType::Link, "etc/b", "etc/a")]]).await.unwrap();
    let inode = |path: &str| fs::metadata(image.rootfs.join(path)).unwrap().ino();
    assert_eq!(inode("etc/a"), inode("etc/b"));
    let error =
        layered(&home, &storage, &[&lower, &[link(EntryType::Link, "etc/c", "etc/nothing")]]).await.unwrap_err();
    assert!(error.to_string().contains("does not precede it"), "{error}");
}

#[tokio::test]
async fn layers_are_read_plain_and_compressed_and_are_the_same_image() {
    let (home, storage) = home();
    let mut digests = Vec::new();
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        fs::remove_dir_all(home.path().join("layout")).ok();
        let layout = Layout::new(&home).layer(packing, &archive(&[directory("./"), file("a", "content")]));
        layout.write();
        digests.push(import(&storage, &layout.path).await.unwrap().digest);
        storage.remove_image(&digests[0], &[]).await.unwrap();
    }
    digests.dedup();
    assert_eq!(digests.len(), 1);
}

#[tokio::test]
async fn nothing_of_a_layer_reaches_outside_whatever_lies_below_it() {
    let (home, storage) = home();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched").unwrap();
    let out = outside.to_str().unwrap();
    let lower = [directory("./"), link(EntryType::Symlink, "a", out), link(EntryType::Symlink, "b", "../../../../..")];
    let uppers: [&[Entry]; 9] = [
        &[file("a/new", "x")],
        &[file("a/.wh.victim", "")],
        &[file("a/.wh..wh.opq", "")],
        &[directory("a/"), file("a/.wh..wh.opq", "")],
        &[file(&format!("b{out}/victim"), "x")],
        &[file(&format!("b{out}/.wh.victim"), "")],
        &[link(EntryType::Link, "stolen", "a/victim")],
        &[file(".wh.a", ""), file("a/victim", "x")],
        &[file("c/.wh..", "")],
    ];
    for upper in uppers {
        fs::remove_dir_all(home.path().join("layout")).ok();
        let result = layered(&home, &storage, &[&lower, upper]).await;
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched", "{upper:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{upper:?}");
        assert_eq!(fs::metadata(outside.join("victim")).unwrap().nlink(), 1);
        if let Ok(image) = result {
            storage.verify_image(&image.digest).await.unwrap();
            storage.remove_image(&image.digest, &[]).await.unwrap();
        }
        assert_eq!((left(&home), layer_names(&home)), (Vec::new(), Vec::new()), "{upper:?}");
    }
}

#[tokio::test]
async fn hostile_layers_are_refused_by_name_and_leave_nothing() {
    let rows: Vec<(&str, Vec<Entry>)> = vec![
        ("leads out of the image", vec![file("../escape", "")]),
        ("leads out of the image", vec![file("a/../../.wh.escape", "")]),
        ("is inside a whiteout", vec![file(".wh.x/inside", "")]),
        ("whiteout with an invalid name", vec![file("a/.wh.", "")]),
        ("whiteout with an invalid name", vec![file("a/.wh...", "")]),
        ("device outside of /dev", vec![entry(EntryType::Block, "disk")]),
        ("belongs to ID 65536", vec![Entry { owner: 65_536, ..file("a", "") }]),
        ("unknown type", vec![entry(EntryType::new(b'Z'), "a")]),
        ("cannot be entered", vec![file("a", ""), file("a/b", "")]),
    ];
    for (expected, entries) in rows {
        let (home, storage) = home();
        let sound = [directory("./"), file("sound", "")];
        let error = layered(&home, &storage, &[&sound, &entries]).await.expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!((left(&home), layer_names(&home)), (Vec::new(), Vec::new()), "{expected}");
        assert!(!home.path().join("escape").exists());
    }
}

#[tokio::test]
async fn blobs_that_are_not_what_is_said_of_them_are_refused_and_leave_nothing() {
    type Spoil = fn(&mut Layout);
    let rows: [(&str, Spoil); 8] = [
        ("does not match its manifest", |layout| {
            let path = layout.path.join("blobs/sha256").join(layout.layers[0].0.hex());
            let mut content = fs::read(&path).unwrap();
            // The comment and name of a gzip header are arbitrary; its time is ignored.
            content[4] ^= 1;
            fs::write(path, content).unwrap();
        }),
        ("does not match its configuration", |layout| layout.diff_ids[0] = sum(b"something else")),
        ("bytes, not 7", |layout| layout.layers[0].1 = 7),
        ("is missing", |layout| {
            fs::remove_file(layout.path.join("blobs/sha256").join(layout.layers[0].0.hex())).unwrap();
        }),
        ("has 1 layers, but its configuration 2", |layout| layout.diff_ids.push(sum(b""))),
        ("unsupported media type", |layout| layout.layers[0].2 = "application/vnd.oci.image.layer.v1.tar+encrypted"),
        ("cannot be read", |layout| {
            let path = layout.path.join("blobs/sha256").join(layout.layers[0].0.hex());
            let mut content = fs::read(&path).unwrap();
            let middle = content.len() / 2;
            content[middle..].fill(0xff);
            fs::write(path, content).unwrap();
        }),
        ("is invalid", |layout| layout.settings = "7"),
    ];
    for (expected, spoil) in rows {
        let (home, storage) = home();
        let entries = [directory("./"), file("a", &"content ".repeat(1000))];
        let mut layout = Layout::new(&home).layer(Packing::Gzip, &archive(&entries));
        spoil(&mut layout);
        layout.write();
        let error = import(&storage, &layout.path).await.expect_err(expected);
        let said = format!("{error}: {:?}", std::error::Error::source(&error));
        assert!(said.contains(expected), "{expected}: {said}");
        assert_eq!((left(&home), layer_names(&home)), (Vec::new(), Vec::new()), "{expected}");
    }
}

#[tokio::test]
async fn a_damaged_layer_is_noticed_and_unpacked_anew() {
    let (home, storage) = home();
    let base = [directory("./"), file("base", "shared by all")];
    let image = layered(&home, &storage, &[&base]).await.unwrap();
    let path = home.path().join("images/layers").join(&image.layers[0]).join("tree/base");
    fs::write(&path, "SHARED by all").unwrap();
    let second = layered(&home, &storage, &[&base, &[file("two", "2")]]).await.unwrap();
    assert_eq!(text(&second, "base"), "shared by all");
    assert!(matches!(storage.verify_image(&image.digest).await, Err(StorageError::DamagedImage { .. })));
}

#[tokio::test]
async fn an_image_that_cannot_be_read_now_is_read_again_the_next_time() {
    let home = tempfile::tempdir().unwrap();
    let open = || {
        let (data, images) = (home.path().join("data"), home.path().join("images"));
        Storage::open_with(&data, &images, std::sync::Arc::new(InPlace)).unwrap()
    };
    let image = layered(&home, &open(), &[&[directory("./"), file("base", "shared by all")]]).await.unwrap();
    let storage = open();
    reread::fail(2);
    let unread = storage.sound_image(&image.digest).await.unwrap_err();
    assert!(unread.is_unread(), "{unread:?}");
    assert_eq!(storage.sound_image(&image.digest).await.unwrap(), image);
    let layer = crate::Stored::ImageLayer(image.layers[0].clone());
    reread::fail(2);
    assert!(storage.check_stored(&layer, None).await.unwrap_err().is_unread());
    assert_eq!(layer_names(&home).len(), 1, "it is kept");
    reread::fail(1);
    assert!(storage.check_stored(&layer, None).await.unwrap().unwrap().damaged.is_empty());
    assert_eq!(reread::fail(0), 0, "no fault is left");
}

#[tokio::test]
async fn whatever_step_fails_there_is_a_sound_image_or_none_and_the_next_import_succeeds() {
    let unpacking = [Step::ImportBegun, Step::LayerBegun, Step::LayerFilled, Step::LayerUnpacked, Step::LayersStacked];
    let naming = [Step::LayerNamed, Step::LayersNamed, Step::Published, Step::TagWritten, Step::Tagged];
    for step in unpacking.into_iter().chain([Step::Unpacked, Step::Listed, Step::ImageSynced]).chain(naming) {
        for ending in [Ending::Fails, Ending::Dies] {
            let home = tempfile::tempdir().unwrap();
            let steps = Armed::new();
            let open =
                |steps| Storage::open_with(&home.path().join("data"), &home.path().join("images"), steps).unwrap();
            let storage = open(steps.clone());
            let layers: [&[Entry]; 2] = [&[directory("./"), file("base", "b")], &[file("two", "2")]];
            steps.arm(step, ending);
            layered(&home, &storage, &layers).await.unwrap_err();
            let storage = if ending == Ending::Dies { open(dorm_steps::pass()) } else { storage };
            let images = storage.images().await.unwrap();
            for image in &images {
                storage.verify_image(&image.digest).await.unwrap();
            }
            assert!(left(&home).iter().all(|name| !name.starts_with('.')), "{step:?} {ending:?}: {:?}", left(&home));
            let expected = if images.is_empty() { 0 } else { 2 };
            assert_eq!(layer_names(&home).len(), expected, "{step:?} {ending:?}");
            layered(&home, &storage, &layers).await.unwrap();
            assert_eq!(layer_names(&home).len(), 2);
        }
    }
}

#[tokio::test]
async fn an_import_of_what_is_there_gives_it_the_tag_and_makes_nothing() {
    let (home, storage) = home();
    let base = [directory("./"), file("base", "b")];
    let first = layered(&home, &storage, &[&base]).await.unwrap();
    let layout = home.path().join("layout");
    let second = storage.import(&layout, Some("localhost:5000/team/base:1"), |_| {}).await.unwrap();
    assert_eq!((&second.digest, &second.tags[1]), (&first.digest, &"localhost:5000/team/base:1".to_owned()));
    assert_eq!(storage.resolve("localhost:5000/team/base:1").await.unwrap().digest, first.digest);
}

pub(super) fn tar_of(directory: &Path) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(".", directory).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn the_helpers_of_these_tests_write_what_they_say() {
    let one = header(&file("a", "content"));
    assert_eq!((one.size().unwrap(), one.mode().unwrap()), (7, 0o755));
}

mod hostile {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::super::hostile::{cases, entries};
    use super::*;
    use crate::images::Images;
    use crate::steps::Steps;

    /// An entry of a layer, sometimes a whiteout.
    fn change() -> impl Strategy<Value = Entry> {
        let marks =
            prop::sample::select(vec![".wh.a", ".wh.b", ".wh.etc", ".wh..wh.opq", ".wh..", ".wh...", ".wh..wh.plnk"]);
        (entries(), prop::option::weighted(0.3, marks)).prop_map(|(mut entry, mark)| {
            if let Some(mark) = mark {
                let path = String::from_utf8(entry.path.clone()).unwrap();
                let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                entry = file(&format!("{above}/{mark}"), "");
            }
            entry
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, rng_seed: RngSeed::Fixed(20_261_123), ..ProptestConfig::default() })]

        #[test]
        fn no_stack_of_layers_touches_anything_outside(
            mut layers in prop::collection::vec(prop::collection::vec(change(), 1..8), 1..4)
        ) {
            let home = tempfile::tempdir().unwrap();
            let outside = home.path().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("a"), "untouched").unwrap();
            let mut layout = Layout::new(&home);
            for entries in &mut layers {
                for entry in entries.iter_mut() {
                    let link = String::from_utf8(entry.link.clone()).unwrap();
                    entry.link = link.replace("/OUTSIDE", outside.to_str().unwrap()).into_bytes();
                    entry.link.truncate(100);
                }
                layout = layout.layer(Packing::Plain, &archive(entries));
            }
            layout.write();
            let images = Images::open(home.path().join("images"), dorm_guest_ids::GuestIds::DEFAULT, Steps(dorm_steps::pass())).unwrap();
            let result = images.import(&layout.path, None, None, &|_| {});
            prop_assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "untouched");
            prop_assert_eq!(fs::metadata(outside.join("a")).unwrap().nlink(), 1);
            prop_assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
            prop_assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3);
            match result {
                Ok(image) => {
                    prop_assert_eq!(left(&home), [image.digest.to_string()]);
                    images.verify(&image.digest).unwrap();
                }
                Err(StorageError::Entry { .. }) => {
                    prop_assert_eq!(left(&home), [""; 0]);
                    prop_assert_eq!(layer_names(&home), [""; 0]);
                }
                Err(error) => return Err(TestCaseError::fail(format!("{error}: {:?}", std::error::Error::source(&error)))),
            }
        }
    }
}
