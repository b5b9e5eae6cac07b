//! Seeds for the fuzzers, made like the inputs of other tests; every committed seed must pass.

use std::fs;

use tar::EntryType;

use super::layers::{Layout, sum, tar_of};
use super::{archive, entry, file, link, sample};
use crate::fuzzing::tests::{pass_all, seed};
use crate::images::documents::Packing;

fn lowest() -> Vec<u8> {
    archive(&[entry(EntryType::Directory, "srv"), file("srv/a", "content"), link(EntryType::Link, "srv/b", "srv/a")])
}

fn highest() -> Vec<u8> {
    archive(&[
        file("srv/.wh.a", ""),
        link(EntryType::Symlink, "srv/c", "../b"),
        file("srv/old/.wh..wh.opq", ""),
        link(EntryType::Link, "srv/d", "srv/b"),
    ])
}

#[test]
fn layers_that_fuzzers_begin_with_pass() {
    let (lowest, highest) = (lowest(), highest());
    seed("layers", "plain", &[&[0], &lowest[..]].concat());
    let length = u16::try_from(lowest.len()).unwrap().to_le_bytes();
    seed("layers", "two", &[&[8], &length[..], &lowest, &[0], &highest].concat());
    seed("layers", "packed", &[&[8 | 2], &length[..], &lowest, &[4], &highest].concat());
    pass_all("layers", |fuzzed, data| fuzzed.layers(data));
}

#[test]
fn archives_that_fuzzers_begin_with_pass() {
    let home = tempfile::tempdir().unwrap();
    seed("archive", "rootfs", &[&[0], &archive(&sample())[..]].concat());
    let layout = Layout::new(&home).layer(Packing::Plain, &lowest()).layer(Packing::Gzip, &highest());
    layout.write();
    seed("archive", "layout", &[&[0], &tar_of(&layout.path)[..]].concat());
    let config = format!(r#"{{"os":"linux","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#, sum(&lowest()));
    let manifest = r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l/layer.tar"]}]"#;
    let layer = String::from_utf8(lowest()).unwrap();
    let docker = archive(&[file("manifest.json", manifest), file("c.json", &config), file("l/layer.tar", &layer)]);
    seed("archive", "docker", &[&[2], &docker[..]].concat());
    pass_all("archive", |fuzzed, data| fuzzed.archive(data));
}

#[test]
fn contexts_that_fuzzers_begin_with_pass() {
    seed("context", "plain", &[&[0], &lowest()[..]].concat());
    let files = [
        file("app/main.py", "print(1)"),
        file("./app/../top", "content"),
        link(EntryType::Symlink, "app/link", "../top"),
        link(EntryType::Link, "again", "top"),
    ];
    seed("context", "packed", &[&[2], &archive(&files)[..]].concat());
    pass_all("context", |fuzzed, data| fuzzed.context(data));
}

#[test]
fn documents_that_fuzzers_begin_with_pass() {
    let home = tempfile::tempdir().unwrap();
    let layout = Layout::new(&home).layer(Packing::Plain, &lowest()).layer(Packing::Zstd, &highest());
    layout.write();
    seed("documents", "index", &fs::read(layout.path.join("index.json")).unwrap());
    let mut texts: Vec<_> = fs::read_dir(layout.path.join("blobs/sha256"))
        .unwrap()
        .map(|blob| fs::read(blob.unwrap().path()).unwrap())
        .filter(|text| text.starts_with(b"{"))
        .collect();
    texts.sort();
    for (number, text) in texts.iter().enumerate() {
        seed("documents", &format!("document-{number}"), text);
    }
    pass_all("documents", |_, data| crate::fuzzing::documents(data));
}
