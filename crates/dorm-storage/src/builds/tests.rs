use super::LogId;
use std::io::Read as _;

use dorm_build::context::Entry;
use dorm_lifecycle::{BuildId, Digest, ProjectId};

use crate::{LogLine, LogStream, Storage, StorageError};

fn storage() -> (tempfile::TempDir, Storage) {
    let home = tempfile::tempdir().unwrap();
    let storage = Storage::open(&home.path().join("data"), &home.path().join("images")).unwrap();
    (home, storage)
}

fn key() -> Digest {
    "a".repeat(64).parse().unwrap()
}

fn header(kind: tar::EntryType, bytes: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Sets a path that the library would refuse.
fn named(mut header: tar::Header, path: &str) -> tar::Header {
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    header
}

fn archive(home: &tempfile::TempDir, entries: &[(tar::Header, &[u8])]) -> std::path::PathBuf {
    let mut builder = tar::Builder::new(Vec::new());
    for (header, content) in entries {
        builder.append(header, *content).unwrap();
    }
    let path = home.path().join("archive.tar");
    std::fs::write(&path, builder.into_inner().unwrap()).unwrap();
    path
}

fn file(path: &str, content: &'static [u8]) -> (tar::Header, &'static [u8]) {
    (named(header(tar::EntryType::Regular, content.len() as u64, 0o755), path), content)
}

#[tokio::test]
async fn a_context_has_the_files_of_its_archive_and_belongs_to_one_project() {
    let (home, storage) = storage();
    let mut link = header(tar::EntryType::Symlink, 0, 0o777);
    link.set_link_name("src/main").unwrap();
    let mut same = header(tar::EntryType::Link, 0, 0o644);
    same.set_link_name("src/main").unwrap();
    let entries = [file("src/main", b"one"), (named(link, "link"), &b""[..]), (named(same, "same"), b"")];
    let archive = archive(&home, &entries);
    let (local, other) = (ProjectId::local(), "other".parse::<ProjectId>().unwrap());
    let stored = storage.import_context(&local, &key(), &archive).await.unwrap();
    let again = storage.import_context(&local, &key(), &archive).await.unwrap();
    assert_eq!(stored.context, again.context);
    for path in ["src/main", "same"] {
        let Some(Entry::File(entry)) = stored.context.get(path) else { panic!("{path}") };
        let mut text = String::new();
        stored.open(entry).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), entry.mode), ("one", 0o755));
    }
    assert_eq!(stored.context.get("link"), Some(&Entry::Link("src/main".to_owned())));
    assert!(storage.context(&other, &key()).await.unwrap().is_none());
    assert_eq!(storage.contexts().await.unwrap().len(), 1);
    storage.remove_context(&local, &key()).await.unwrap();
    storage.remove_context(&local, &key()).await.unwrap();
    assert!(storage.context(&local, &key()).await.unwrap().is_none());
    assert!(storage.contexts().await.unwrap().is_empty());
    // A removal that was interrupted is completed by the next upload, or the next daemon.
    for _ in 0..2 {
        storage.import_context(&local, &key(), &archive).await.unwrap();
        let place = home.path().join("data/builds/contexts/local").join("a".repeat(64));
        std::fs::remove_file(place.join("index.json")).unwrap();
    }
    Storage::open(&home.path().join("data"), &home.path().join("images")).unwrap();
    assert!(storage.contexts().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_hostile_archive_is_refused_and_leaves_nothing() {
    let (home, storage) = storage();
    let link = |target: &str| {
        let mut link = header(tar::EntryType::Link, 0, 0o644);
        link.set_link_name(target).unwrap();
        named(link, "hard")
    };
    let mut symlink = header(tar::EntryType::Symlink, 0, 0o777);
    symlink.set_link_name("/etc").unwrap();
    let cases: [&[(tar::Header, &[u8])]; 6] = [
        &[file("../../outside", b"x")],
        &[file("a/../../outside", b"x")],
        &[(named(symlink, "a"), b""), file("a/passwd", b"x")],
        &[file("a", b"x"), file("a/b", b"x")],
        &[(link("missing"), b"")],
        &[(named(header(tar::EntryType::Fifo, 0, 0o644), "pipe"), b"")],
    ];
    for entries in cases {
        let archive = archive(&home, entries);
        let refused = storage.import_context(&ProjectId::local(), &key(), &archive).await.unwrap_err();
        assert!(matches!(refused, StorageError::Source { .. } | StorageError::Entry { .. }), "{refused}");
    }
    let archive = archive(&home, &[file("a", b"content")]);
    let whole = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &whole[..600]).unwrap();
    assert!(storage.import_context(&ProjectId::local(), &key(), &archive).await.is_err());
    assert!(storage.contexts().await.unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(home.path().join("data/builds")).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!home.path().join("outside").exists());
}

#[tokio::test]
async fn a_damaged_context_is_noticed_when_it_is_read_and_replaced_by_the_next_upload() {
    let (home, storage) = storage();
    let archive = archive(&home, &[file("a", b"content")]);
    let stored = storage.import_context(&ProjectId::local(), &key(), &archive).await.unwrap();
    let path = home.path().join("data/builds/contexts/local").join("a".repeat(64)).join("content");
    std::fs::write(&path, b"CONTENT").unwrap();
    let Some(Entry::File(entry)) = stored.context.get("a") else { panic!() };
    assert!(stored.open(entry).unwrap().read_to_end(&mut Vec::new()).is_err());
    for damaged in [path.clone(), path.with_file_name("index.json")] {
        std::fs::write(damaged, b"CONTENT").unwrap();
        let stored = storage.import_context(&ProjectId::local(), &key(), &archive).await.unwrap();
        stored.open(entry).unwrap().read_to_end(&mut Vec::new()).unwrap();
    }
    // One that is whole stays.
    let before = std::fs::metadata(&path).unwrap().modified().unwrap();
    storage.import_context(&ProjectId::local(), &key(), &archive).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
}

fn line(stream: LogStream, text: &str) -> LogLine {
    LogLine { at_ms: 5, step: Some(1), stream, text: text.to_owned() }
}

#[tokio::test]
async fn a_log_is_read_from_any_line_and_forgets_one_that_was_cut_short() {
    let (home, storage) = storage();
    let build = LogId::from(&BuildId::from_random([1; 20]));
    assert_eq!(storage.log(&build, 0, 10).await.unwrap().next, 0);
    let lines: Vec<_> = ["one", "two\u{1b}", ""].map(|text| line(LogStream::Stdout, text)).to_vec();
    storage.append_log(&build, lines.clone()).await.unwrap();
    let page = storage.log(&build, 1, 1).await.unwrap();
    assert_eq!((page.lines, page.next), (vec![lines[1].clone()], 2));
    let path = home.path().join("data/builds/logs").join(build.as_str());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    assert_eq!(storage.log(&build, 0, 10).await.unwrap().lines, lines[..2]);
    storage.append_log(&build, vec![line(LogStream::Build, "four")]).await.unwrap();
    let page = storage.log(&build, 0, 10).await.unwrap();
    let texts: Vec<_> = page.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["one", "two\u{1b}", "four"]);
    storage.remove_log(&build).await.unwrap();
    assert!(storage.log(&build, 0, 10).await.unwrap().lines.is_empty());
}

#[tokio::test]
async fn the_oldest_output_is_kept_and_what_the_builder_says_always() {
    let (_home, storage) = storage();
    let build = LogId::from(&BuildId::from_random([2; 20]));
    let long = "x".repeat(1 << 20);
    for _ in 0..10 {
        storage.append_log(&build, vec![line(LogStream::Stdout, &long)]).await.unwrap();
    }
    storage.append_log(&build, vec![line(LogStream::Build, "failed")]).await.unwrap();
    let lines = storage.log(&build, 0, 100).await.unwrap().lines;
    let said: Vec<_> = lines.iter().filter(|line| line.stream == LogStream::Build).map(|line| &line.text[..]).collect();
    assert_eq!(said, ["the output is larger than 8 MiB: the rest is left out", "failed"]);
    assert_eq!(lines.len(), 10);
}
