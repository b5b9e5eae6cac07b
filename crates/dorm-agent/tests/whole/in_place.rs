//! Writes in place and extended attributes.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use bytes::Bytes;
use dorm_agent_client::{
    ATTRIBUTES_BYTES_MAX, AgentError, Attribute, FileKind, FileStat, GuestBytes, GuestPath, Parents, User, WriteAt,
    WriteOptions,
};
use futures_util::stream;

use crate::support::{Sandbox, text, within};

async fn write(
    sandbox: &Sandbox,
    path: &GuestPath,
    at: WriteAt,
    options: WriteOptions,
    bytes: &'static [u8],
) -> Result<FileStat, AgentError> {
    let body = stream::iter([Ok::<_, Infallible>(Bytes::from_static(bytes))]);
    within(sandbox.agent.write_in_place(path, at, options, body)).await
}

#[tokio::test]
async fn a_file_that_is_written_in_place_keeps_its_inode_and_mode() {
    let sandbox = Sandbox::new().await;
    let file = sandbox.host_path("file");
    fs::write(&file, "0123456789").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
    symlink("file", sandbox.host_path("link")).unwrap();
    let before = fs::metadata(&file).unwrap();
    for (name, at, bytes, expected) in [
        ("file", WriteAt::Offset(4), &b"xy"[..], &b"0123xy6789"[..]),
        ("link", WriteAt::End, b"z", b"0123xy6789z"),
        ("file", WriteAt::Offset(13), b"!", b"0123xy6789z\0\0!"),
        ("file", WriteAt::Emptied, b"new", b"new"),
    ] {
        let stat = write(&sandbox, &sandbox.path(name), at, WriteOptions::default(), bytes).await.unwrap();
        assert_eq!((fs::read(&file).unwrap().as_slice(), stat.size), (expected, expected.len() as u64));
        let after = fs::metadata(&file).unwrap();
        assert_eq!((after.ino(), after.mode(), after.uid()), (before.ino(), before.mode(), before.uid()));
    }
    let options = WriteOptions { mode: Some(0o600), ..WriteOptions::default() };
    write(&sandbox, &sandbox.path("file"), WriteAt::End, options, b"").await.unwrap();
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.ino(), after.mode() & 0o7777, after.len()), (before.ino(), 0o600, 3));
}

#[tokio::test]
async fn a_missing_file_is_created_with_its_parents_and_owner() {
    let sandbox = Sandbox::new().await;
    let owner = User::Id { uid: 4711, gid: Some(12) };
    let options = WriteOptions { owner: Some(owner), parents: Parents::Create, ..WriteOptions::default() };
    let stat = write(&sandbox, &sandbox.path("a/b/file"), WriteAt::End, options, b"x").await.unwrap();
    assert_eq!((stat.size, stat.mode, stat.uid, stat.gid), (1, 0o644, 4711, 12));
    assert_eq!(fs::metadata(sandbox.host_path("a")).unwrap().uid(), 4711);
    let orphan = sandbox.path("no/file");
    let refused = write(&sandbox, &orphan, WriteAt::Emptied, WriteOptions::default(), b"x").await;
    assert!(matches!(refused, Err(AgentError::NotFound(_))), "{refused:?}");
}

#[tokio::test]
async fn only_regular_files_are_written_in_place() {
    let sandbox = Sandbox::new().await;
    within(sandbox.shell(&format!("mkfifo {0}/pipe && mkdir {0}/directory", sandbox.path("").to_text()))).await;
    for (name, is_expected) in [
        ("pipe", (|error| matches!(error, AgentError::NotAFile(_))) as fn(&AgentError) -> bool),
        ("directory", |error| matches!(error, AgentError::IsADirectory(_))),
    ] {
        let refused = write(&sandbox, &sandbox.path(name), WriteAt::End, WriteOptions::default(), b"x").await;
        assert!(refused.as_ref().is_err_and(is_expected), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_body_that_fails_leaves_what_came_before_it() {
    let sandbox = Sandbox::new().await;
    let path = sandbox.path("file");
    let body = stream::iter([Ok(Bytes::from_static(b"part")), Err(std::io::Error::other("the caller is gone"))]);
    let failed = within(sandbox.agent.write_in_place(&path, WriteAt::Emptied, WriteOptions::default(), body)).await;
    assert!(matches!(failed, Err(AgentError::Body { .. })), "{failed:?}");
    assert_eq!(fs::read(sandbox.host_path("file")).unwrap(), b"part");
}

#[tokio::test]
async fn attributes_are_set_listed_and_removed() {
    let sandbox = Sandbox::new().await;
    fs::write(sandbox.host_path("file"), "x").unwrap();
    let path = sandbox.path("file");
    let one = |name: &str, value: &[u8]| Attribute { name: text(name), value: GuestBytes(value.to_vec()) };
    let (kind, bytes) = (one("user.kind", b"report"), one("user.bytes", b"\0\xff"));
    assert_eq!(within(sandbox.agent.attributes(&path)).await.unwrap(), []);
    let set = within(sandbox.agent.set_attributes(&path, vec![kind.clone(), bytes.clone()], Vec::new())).await;
    assert_eq!(set.unwrap(), [bytes.clone(), kind.clone()]);
    let gone = vec![text("user.kind"), text("user.never")];
    assert_eq!(
        within(sandbox.agent.set_attributes(&path, Vec::new(), gone)).await.unwrap(),
        std::slice::from_ref(&bytes)
    );
    for (name, length) in [("security.x", 1), ("user.", 1), ("user.large", ATTRIBUTES_BYTES_MAX)] {
        let refused = within(sandbox.agent.set_attributes(&path, vec![one(name, &vec![7; length])], Vec::new())).await;
        assert!(matches!(refused, Err(AgentError::Invalid(_))), "{name}: {refused:?}");
    }
    assert_eq!(within(sandbox.agent.attributes(&path)).await.unwrap(), [bytes]);
    let absent = within(sandbox.agent.attributes(&sandbox.path("absent"))).await;
    assert!(matches!(absent, Err(AgentError::NotFound(_))), "{absent:?}");
}

#[tokio::test]
async fn a_path_is_described_with_its_attributes_and_the_target_of_its_link() {
    let sandbox = Sandbox::new().await;
    fs::create_dir(sandbox.host_path("directory")).unwrap();
    fs::write(sandbox.host_path("directory/file"), "x").unwrap();
    symlink("directory", sandbox.host_path("link")).unwrap();
    symlink("nowhere", sandbox.host_path("broken")).unwrap();
    let (file, link) = (sandbox.path("directory/file"), sandbox.path("link"));
    let attribute = Attribute { name: text("user.kind"), value: GuestBytes(b"report".to_vec()) };
    within(sandbox.agent.set_attributes(&file, vec![attribute.clone()], Vec::new())).await.unwrap();
    let found = within(sandbox.agent.describe(&file)).await.unwrap();
    assert_eq!((found.stat.kind, found.target, found.attributes), (FileKind::File, None, vec![attribute.clone()]));
    let found = within(sandbox.agent.describe(&link)).await.unwrap();
    let target = found.target.unwrap();
    assert_eq!((found.stat.kind, target.kind), (FileKind::Link, FileKind::Directory));
    assert!(target.path.to_text().ends_with("/directory"), "{target:?}");
    assert_eq!(within(sandbox.agent.describe(&sandbox.path("broken"))).await.unwrap().target, None);
    let absent = within(sandbox.agent.describe(&sandbox.path("absent"))).await;
    assert!(matches!(absent, Err(AgentError::NotFound(_))), "{absent:?}");
    // A link is followed to be listed, and the paths keep its name.
    let page = within(sandbox.agent.describe_entries(&link, 1, None, 10)).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!((&page.items[0].path, &page.items[0].attributes), (&sandbox.path("link/file"), &vec![attribute]));
}
