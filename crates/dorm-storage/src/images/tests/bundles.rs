//! The formats of images, detected by their content.

use std::fs;

use tar::EntryType;

use super::layers::{Layout, pack, sum, tar_of};
use super::{archive, entry, file, home, import, left, link};
use crate::images::ImageConfig;
use crate::images::documents::Packing;

const SETTINGS: &str = r#"{"Env":["A=1"],"Entrypoint":["/init"],"WorkingDir":"/srv","User":"ann"}"#;

fn layout(home: &tempfile::TempDir) -> Layout {
    let one = archive(&[entry(EntryType::Directory, "./"), file("one", "1")]);
    let two = archive(&[file("two", "2"), file(".wh.one", "")]);
    let mut layout = Layout::new(home).layer(Packing::Gzip, &one).layer(Packing::Zstd, &two);
    layout.settings = SETTINGS;
    layout
}

#[tokio::test]
async fn an_oci_layout_is_one_as_a_directory_an_archive_and_a_compressed_one() {
    let (home, storage) = home();
    let layout = layout(&home);
    let manifest = layout.write();
    let image = import(&storage, &layout.path).await.unwrap();
    assert_eq!(fs::read_to_string(image.rootfs.join("two")).unwrap(), "2");
    assert!(!image.rootfs.join("one").exists());
    let expected = ImageConfig {
        entrypoint: vec!["/init".into()],
        env: vec!["A=1".into()],
        directory: Some("/srv".into()),
        user: Some("ann".into()),
        architecture: Some("amd64".into()),
        ..ImageConfig::default()
    };
    assert_eq!(image.config, expected);
    assert_eq!(storage.image_config(&image.digest).await.unwrap(), expected);
    assert_eq!(image.source.manifest, Some(manifest.to_string()));
    let plain = tar_of(&layout.path);
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        let path = home.path().join("archive");
        fs::write(&path, pack(packing, &plain)).unwrap();
        storage.remove_image(&image.digest, &[]).await.unwrap();
        assert_eq!(import(&storage, &path).await.unwrap().digest, image.digest, "{packing:?}");
        assert_eq!(left(&home), [image.digest.to_string()]);
    }
}

#[tokio::test]
async fn a_docker_archive_is_read_with_its_settings_and_linked_layers() {
    let (home, storage) = home();
    let layer = archive(&[entry(EntryType::Directory, "./"), file("one", "1")]);
    let id = sum(&layer);
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{SETTINGS},"rootfs":{{"type":"layers","diff_ids":["{id}","{id}"]}}}}"#
    );
    let name = sum(config.as_bytes());
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let manifest = format!(
        r#"[{{"Config":"{}.json","RepoTags":["python:3"],"Layers":["{a}/layer.tar","{b}/layer.tar"]}}]"#,
        name.hex()
    );
    let as_text = |bytes: &[u8]| bytes.to_vec();
    let mut entries = vec![
        file(&format!("{a}/VERSION"), "1.0"),
        super::Entry { content: as_text(&layer), ..file(&format!("{a}/layer.tar"), "") },
        link(EntryType::Symlink, &format!("{b}/layer.tar"), &format!("../{a}/layer.tar")),
        file(&format!("{}.json", name.hex()), &config),
        file("manifest.json", &manifest),
    ];
    let path = home.path().join("docker.tar");
    fs::write(&path, archive(&entries)).unwrap();
    let image = import(&storage, &path).await.unwrap();
    assert_eq!((image.layers.len(), image.source.reference.as_deref()), (2, Some("python:3")));
    assert_eq!((image.config.user.as_deref(), image.config.start()), (Some("ann"), vec!["/init".to_owned()]));
    entries[3] = file(&format!("{}.json", name.hex()), &config.replace("ann", "eve"));
    fs::write(&path, archive(&entries)).unwrap();
    let error = import(&storage, &path).await.unwrap_err();
    assert!(error.to_string().contains("does not match its name"), "{error}");
}

#[tokio::test]
async fn what_only_looks_like_an_image_is_a_root_filesystem() {
    let (home, storage) = home();
    let source = home.path().join("source");
    fs::create_dir_all(source.join("blobs/sha256")).unwrap();
    fs::write(source.join("index.json"), "{}").unwrap();
    let image = import(&storage, &source).await.unwrap();
    assert_eq!((image.layers.len(), image.rootfs.join("index.json").exists()), (0, true));
    let path = home.path().join("archive");
    fs::write(&path, archive(&[file("index.json", "{}"), file("bin/sh", "")])).unwrap();
    assert!(import(&storage, &path).await.unwrap().rootfs.join("bin/sh").exists());
    fs::write(&path, pack(Packing::Gzip, &archive(&[file("index.json", "{}"), file("bin/sh", "")]))).unwrap();
    assert!(import(&storage, &path).await.unwrap().rootfs.join("bin/sh").exists());
    fs::write(&path, pack(Packing::Zstd, &archive(&[file("bin/sh", "")]))).unwrap();
    assert!(import(&storage, &path).await.unwrap().rootfs.join("bin/sh").exists());
}

#[tokio::test]
async fn invalid_layouts_are_refused_and_leave_nothing() {
    let (home, storage) = home();
    let layout = layout(&home);
    let digest = layout.write();
    let index = |manifests: &str| {
        let text = format!(r#"{{"schemaVersion":2,"manifests":[{manifests}]}}"#);
        fs::write(layout.path.join("index.json"), text).unwrap();
    };
    let size = fs::metadata(layout.path.join("blobs/sha256").join(digest.hex())).unwrap().len();
    let one = |more: &str| format!(r#"{{"digest":"{digest}","size":{size}{more}}}"#);
    let named = |name: &str| one(&format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#));
    let other = r#","platform":{"os":"linux","architecture":"s390x"}"#;
    for (manifests, expected) in [
        (String::new(), "it has no image for linux/"),
        (format!("{},{}", named("one"), named("two")), "several images (one, two)"),
        (format!("{},{}", one(other), one(other)), "linux/s390x"),
        (one("").replace(&size.to_string(), "3"), "does not match: its digest"),
        (one("").replace(digest.hex(), &"0".repeat(64)), "is missing"),
        (one("").replace(digest.hex(), "../../x"), "64 lower-case hexadecimal"),
    ] {
        index(&manifests);
        let error = import(&storage, &layout.path).await.expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(left(&home), [""; 0]);
    }
}
