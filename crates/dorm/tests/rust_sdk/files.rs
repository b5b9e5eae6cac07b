//! Files.

use anyhow::Result;
use dorm_client::Sandbox;
use dorm_client::types::{FileAttribute, FileKind, SetFileAttributes, Text};
use dorm_client::{ClientError, Wanted};
use futures_util::TryStreamExt as _;

use crate::cases::{Cases, code_of, error_of};

/// The daemon of the cases, and what they share.
struct On {
    sandbox: Sandbox,
}

crate::cases::area! {
    a_file_is_read_as_it_was_written,
    text_is_read_as_text_and_other_bytes_are_an_error,
    a_range_of_a_file_is_read,
    a_large_file_passes_through_as_a_stream,
    a_source_that_fails_changes_nothing,
    mode_and_owner_are_set,
    a_file_is_changed_in_place,
    missing_directories_are_created_unless_that_is_not_wanted,
    a_directory_is_listed_in_order,
    a_long_directory_is_listed_completely,
    properties_of_links_and_missing_files_are_known,
    a_file_that_does_not_exist_is_an_error,
    directories_are_created_and_removed,
    a_file_is_renamed_over_another_one,
    extended_attributes_are_set_and_removed,
    a_path_may_have_any_characters,
}

#[tokio::test]
async fn files() {
    let mut cases = Cases::new("files");
    let sandbox = cases.dormouse().create("base").await.unwrap();
    let on = On { sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_file_is_read_as_it_was_written(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let all: Vec<u8> = (0..=255).collect();
    let stat = files.write("/work/deep/bytes", all.clone()).await?;
    assert_eq!((stat.size_bytes, stat.mode.as_str(), stat.kind), (256, "0644", FileKind::File));
    assert_eq!(files.read("/work/deep/bytes").await?, all);
    assert_eq!(files.write("/work/empty", "").await?.size_bytes, 0);
    assert_eq!(files.read("/work/empty").await?, b"");
    Ok(())
}

async fn text_is_read_as_text_and_other_bytes_are_an_error(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.write("/work/text", "grüß\n").await?;
    assert_eq!(files.read_text("/work/text").await?, "grüß\n");
    files.write("/work/bytes", &b"\xff"[..]).await?;
    let error = error_of(files.read_text("/work/bytes").await);
    assert!(matches!(error, ClientError::NotText { .. }), "{error}");
    Ok(())
}

async fn a_range_of_a_file_is_read(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.write("/work/range", "0123456789").await?;
    assert_eq!(files.read_range("/work/range", 2..5).await?, b"234");
    assert_eq!(files.read_range("/work/range", 2..=5).await?, b"2345");
    assert_eq!(files.read_range("/work/range", 8..).await?, b"89");
    assert_eq!(files.read_range("/work/range", ..1).await?, b"0");
    assert_eq!(error_of(files.read_range("/work/range", 10..).await).status(), Some(416));
    Ok(())
}

async fn a_large_file_passes_through_as_a_stream(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let piece = bytes::Bytes::from(vec![7; 1 << 20]);
    let pieces = futures_util::stream::iter((0..16).map(move |_| Ok(piece.clone())));
    let stat = files.write_stream("/work/large", Wanted::default(), pieces).await?;
    assert_eq!(stat.size_bytes, 16 << 20);
    let read = files.read_stream("/work/large").await?;
    let length = read.try_fold(0, |sum, piece| async move { Ok(sum + piece.len()) }).await?;
    assert_eq!(length, 16 << 20);
    Ok(())
}

async fn a_source_that_fails_changes_nothing(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.write("/work/whole", "before").await?;
    let failing =
        futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"half")), Err(std::io::Error::other("no"))]);
    error_of(files.write_stream("/work/whole", Wanted::default(), failing).await);
    assert_eq!(files.read_text("/work/whole").await?, "before");
    Ok(())
}

async fn mode_and_owner_are_set(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let wanted = Wanted { mode: Some(0o750), user: Some("1000:1000".to_owned()), ..Wanted::default() };
    let stat = files.write_with("/work/mode", wanted, "#!").await?;
    assert_eq!((stat.mode.as_str(), stat.uid, stat.gid), ("0750", 1000, 1000));
    Ok(())
}

async fn a_file_is_changed_in_place(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.write("/work/place", "abc").await?;
    files.append("/work/place", "def").await?;
    let at = Wanted { offset: Some(1), ..Wanted::default() };
    files.write_with("/work/place", at, "XY").await?;
    assert_eq!(files.read_text("/work/place").await?, "aXYdef");
    let whole = Wanted { in_place: true, ..Wanted::default() };
    files.write_with("/work/place", whole, "new").await?;
    assert_eq!(files.read_text("/work/place").await?, "new");
    Ok(())
}

async fn missing_directories_are_created_unless_that_is_not_wanted(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let without = Wanted { without_parents: true, ..Wanted::default() };
    assert_eq!(code_of(files.write_with("/none/a/b", without, "x").await), "not_found");
    assert!(!files.exists("/none").await?);
    Ok(())
}

async fn a_directory_is_listed_in_order(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    for name in ["b", "a", "c/d"] {
        files.write(&format!("/list/{name}"), "").await?;
    }
    let paths = |found: Vec<dorm_client::types::FileStat>| {
        found.into_iter().map(|stat| stat.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(paths(files.list("/list").await?), ["/list/a", "/list/b", "/list/c"]);
    assert_eq!(paths(files.list_levels("/list", 2).await?), ["/list/a", "/list/b", "/list/c", "/list/c/d"]);
    Ok(())
}

async fn a_long_directory_is_listed_completely(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let files = on.sandbox.files();
    sandbox.exec("mkdir /long && cd /long && seq 1 2500 | xargs touch").check().await?;
    assert_eq!(files.list("/long").await?.len(), 2500);
    Ok(())
}

async fn properties_of_links_and_missing_files_are_known(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let files = on.sandbox.files();
    sandbox.exec("ln -s /target /work/link").check().await?;
    let link = files.stat("/work/link").await?.unwrap();
    assert_eq!((link.kind, link.link), (FileKind::Link, Some(Text::Plain("/target".to_owned()))));
    assert_eq!(files.stat("/work/none").await?, None);
    assert!(files.exists("/work").await? && !files.exists("/work/none").await?);
    Ok(())
}

async fn a_file_that_does_not_exist_is_an_error(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let error = error_of(files.read("/work/none").await);
    assert_eq!(error.code(), "not_found");
    assert!(error.to_string().contains("/work/none"), "{error}");
    assert_eq!(code_of(files.list("/work/none").await), "not_found");
    assert_eq!(code_of(files.remove("/work/none").await), "not_found");
    Ok(())
}

async fn directories_are_created_and_removed(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    assert_eq!(files.mkdir("/made/by/us").await?.kind, FileKind::Directory);
    files.mkdir("/made/by/us").await?;
    assert_eq!(code_of(files.remove("/made").await), "conflict");
    files.remove_all("/made").await?;
    assert!(!files.exists("/made").await?);
    Ok(())
}

async fn a_file_is_renamed_over_another_one(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.write("/work/from", "new").await?;
    files.write("/work/to", "old").await?;
    assert_eq!(files.rename("/work/from", "/work/to").await?.path.to_string(), "/work/to");
    assert_eq!(files.read_text("/work/to").await?, "new");
    assert!(!files.exists("/work/from").await?);
    Ok(())
}

async fn extended_attributes_are_set_and_removed(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let files = on.sandbox.files();
    files.write("/work/attributes", "").await?;
    let plain = |text: &str| Text::Plain(text.to_owned());
    let set = vec![FileAttribute { name: plain("user.note"), value: plain("yes") }];
    let asked = SetFileAttributes { path: plain("/work/attributes"), set: set.clone(), remove: Vec::new() };
    let client = sandbox.client();
    assert_eq!(client.set_attributes(sandbox.id(), &asked).await?.attributes, set);
    assert_eq!(client.attributes(sandbox.id(), "/work/attributes").await?.attributes, set);
    let asked = SetFileAttributes { set: Vec::new(), remove: vec![plain("user.note")], ..asked };
    assert_eq!(client.set_attributes(sandbox.id(), &asked).await?.attributes, []);
    Ok(())
}

async fn a_path_may_have_any_characters(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    for path in ["/work/a b", "/work/ü", "/work/100%&?#+", "/work/line\nbreak"] {
        files.write(path, path).await?;
        assert_eq!(files.read_text(path).await?, path);
    }
    Ok(())
}
