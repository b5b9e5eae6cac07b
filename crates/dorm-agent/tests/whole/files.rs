use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use bytes::Bytes;
use dorm_agent_client::{AgentError, FileKind, GuestPath, Parents, RemoveScope, WriteOptions};
use futures_util::{Stream, StreamExt, stream};

use crate::support::{Sandbox, within};

fn body(bytes: &[u8]) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::iter(vec![Ok(Bytes::copy_from_slice(bytes))])
}

async fn read(sandbox: &Sandbox, path: &GuestPath, offset: u64, length: Option<u64>) -> Vec<u8> {
    let (_, mut contents) = within(sandbox.agent.read_file(path, offset, length)).await.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = within(contents.next()).await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 253) as u8).collect()
}

#[tokio::test]
async fn a_large_file_goes_both_ways_while_others_are_answered() {
    let sandbox = Sandbox::new().await;
    let contents = pattern(64 << 20);
    let path = sandbox.path("large");
    let chunks: Vec<Result<Bytes, Infallible>> =
        contents.chunks(1 << 20).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    let write = sandbox.agent.write_file(&path, WriteOptions::default(), stream::iter(chunks));
    let meanwhile = async {
        for _ in 0..20 {
            sandbox.agent.ping().await.unwrap();
        }
    };
    let (stat, ()) = within(async { tokio::join!(write, meanwhile) }).await;
    assert_eq!(stat.unwrap().size, 64 << 20);
    assert!(fs::read(sandbox.host_path("large")).unwrap() == contents);

    let (stat, mut stream) = within(sandbox.agent.read_file(&path, 0, None)).await.unwrap();
    assert_eq!(stat.size, 64 << 20);
    let mut at = 0;
    let mut pieces = 0;
    while let Some(piece) = within(stream.next()).await {
        let piece = piece.unwrap();
        assert!(contents[at..].starts_with(&piece));
        at += piece.len();
        pieces += 1;
        if pieces % 200 == 0 {
            within(sandbox.agent.ping()).await.unwrap();
        }
    }
    assert_eq!(at, contents.len());
}

#[tokio::test]
async fn a_reader_that_stalls_blocks_no_other_and_can_continue() {
    let sandbox = Sandbox::new().await;
    let contents = pattern(3 << 20);
    fs::write(sandbox.host_path("file"), &contents).unwrap();
    let path = sandbox.path("file");
    let (_, mut slow) = within(sandbox.agent.read_file(&path, 0, None)).await.unwrap();
    let first = within(slow.next()).await.unwrap().unwrap();
    for _ in 0..5 {
        assert!(read(&sandbox, &path, 0, None).await == contents);
    }
    let mut all = first.to_vec();
    while let Some(piece) = within(slow.next()).await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert!(all == contents);
}

#[tokio::test]
async fn a_part_of_a_file_can_be_read() {
    let sandbox = Sandbox::new().await;
    fs::write(sandbox.host_path("file"), b"0123456789").unwrap();
    let path = sandbox.path("file");
    assert_eq!(read(&sandbox, &path, 3, Some(4)).await, b"3456");
    assert_eq!(read(&sandbox, &path, 8, Some(100)).await, b"89");
    assert_eq!(read(&sandbox, &path, 100, None).await, b"");
    assert_eq!(read(&sandbox, &path, 0, Some(0)).await, b"");
}

#[tokio::test]
async fn what_cannot_be_read_is_told_apart() {
    let sandbox = Sandbox::new().await;
    let failed = async |path: &GuestPath| within(sandbox.agent.read_file(path, 0, None)).await.unwrap_err();
    assert!(matches!(failed(&sandbox.path("missing")).await, AgentError::NotFound(_)));
    assert!(matches!(failed(&sandbox.path("")).await, AgentError::IsADirectory(_)));
    assert!(matches!(failed(&GuestPath::try_from("/dev/zero").unwrap()).await, AgentError::NotAFile(_)));
    fs::write(sandbox.host_path("file"), "x").unwrap();
    assert!(matches!(failed(&sandbox.path("file/below")).await, AgentError::NotADirectory(_)));
}

#[tokio::test]
async fn a_written_file_keeps_mode_and_links_of_the_one_before() {
    let sandbox = Sandbox::new().await;
    let path = sandbox.path("script");
    let options = WriteOptions { mode: Some(0o750), ..WriteOptions::default() };
    assert_eq!(within(sandbox.agent.write_file(&path, options, body(b"one"))).await.unwrap().mode, 0o750);
    let stat = within(sandbox.agent.write_file(&path, WriteOptions::default(), body(b"two"))).await.unwrap();
    assert_eq!((stat.mode, stat.size, stat.kind), (0o750, 3, FileKind::File));
    symlink("script", sandbox.host_path("link")).unwrap();
    let link = sandbox.path("link");
    let stat = within(sandbox.agent.write_file(&link, WriteOptions::default(), body(b"three"))).await;
    assert_eq!(stat.unwrap().kind, FileKind::Link);
    assert_eq!(fs::read(sandbox.host_path("script")).unwrap(), b"three");
    let fresh = within(sandbox.agent.write_file(&sandbox.path("new"), WriteOptions::default(), body(b""))).await;
    assert_eq!(fresh.unwrap().mode, 0o644);
}

#[tokio::test]
async fn a_write_that_is_not_completed_changes_nothing() {
    let sandbox = Sandbox::new().await;
    fs::write(sandbox.host_path("file"), "old").unwrap();
    let path = sandbox.path("file");
    let broken = stream::iter(vec![Ok(Bytes::from(vec![1; 300_000])), Err("the source broke")]);
    let failed = within(sandbox.agent.write_file(&path, WriteOptions::default(), broken)).await;
    assert!(matches!(failed, Err(AgentError::Body { .. })));
    let mut endless =
        Box::pin(sandbox.agent.write_file(&path, WriteOptions::default(), body(b"part").chain(stream::pending())));
    tokio::select! {
        biased;
        result = &mut endless => panic!("{result:?}"),
        () = async { within(sandbox.agent.ping()).await.unwrap() } => {}
    }
    drop(endless);
    within(async {
        loop {
            let names: Vec<_> = fs::read_dir(sandbox.host_path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
            if names == ["file"] {
                break;
            }
            sandbox.agent.ping().await.unwrap();
        }
    })
    .await;
    assert_eq!(fs::read(sandbox.host_path("file")).unwrap(), b"old");
}

#[tokio::test]
async fn a_part_that_was_left_behind_does_not_prevent_a_write() {
    let sandbox = Sandbox::new().await;
    // Names that agents gave before: a snapshot of files, or a fork on the same volume, has them.
    let left: Vec<_> = (0..3).map(|number| format!(".dorm-{}-{number}.part", sandbox.pid())).collect();
    for name in &left {
        fs::write(sandbox.host_path(name), "left").unwrap();
    }
    for contents in [b"one", b"two"] {
        within(sandbox.agent.write_file(&sandbox.path("file"), WriteOptions::default(), body(contents))).await.unwrap();
        assert_eq!(fs::read(sandbox.host_path("file")).unwrap(), contents);
    }
    let names = fs::read_dir(sandbox.host_path("")).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [&left[..], &["file".to_owned()]].concat());
}

#[tokio::test]
async fn what_cannot_be_written_is_told_apart_however_much_is_sent() {
    let sandbox = Sandbox::new().await;
    let many = || stream::iter((0..40).map(|_| Ok::<_, Infallible>(Bytes::from(vec![0; 1 << 16]))));
    let failed = async |path: &GuestPath| {
        within(sandbox.agent.write_file(path, WriteOptions::default(), many())).await.unwrap_err()
    };
    assert!(matches!(failed(&sandbox.path("missing/file")).await, AgentError::NotFound(_)));
    assert!(matches!(failed(&sandbox.path("")).await, AgentError::IsADirectory(_)));
    assert!(matches!(failed(&GuestPath::try_from("/dev/full").unwrap()).await, AgentError::NotAFile(_)));
    let options = WriteOptions { parents: Parents::Create, ..WriteOptions::default() };
    within(sandbox.agent.write_file(&sandbox.path("a/b/file"), options, many())).await.unwrap();
    assert_eq!(fs::metadata(sandbox.host_path("a/b/file")).unwrap().len(), 40 << 16);
}

#[tokio::test]
async fn directories_are_made_listed_renamed_and_removed() {
    let sandbox = Sandbox::new().await;
    let agent = &sandbox.agent;
    let deep = sandbox.path("a/b");
    assert!(matches!(within(agent.make_directory(&deep, Parents::Require, None)).await, Err(AgentError::NotFound(_))));
    assert_eq!(within(agent.make_directory(&deep, Parents::Create, None)).await.unwrap().kind, FileKind::Directory);
    within(agent.make_directory(&deep, Parents::Create, None)).await.unwrap();
    assert!(matches!(within(agent.make_directory(&deep, Parents::Require, None)).await, Err(AgentError::Exists(_))));
    fs::write(sandbox.host_path("a/b/file"), "12345").unwrap();
    symlink("b", sandbox.host_path("a/link")).unwrap();

    let list = async |depth| {
        let page = within(agent.list(&sandbox.path("a"), depth, None, 100)).await.unwrap();
        assert!(!page.more);
        page.items.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
    };
    assert_eq!(list(1).await, [sandbox.path("a/b"), sandbox.path("a/link")]);
    assert_eq!(list(9).await, [sandbox.path("a/b"), sandbox.path("a/b/file"), sandbox.path("a/link")]);
    assert!(matches!(within(agent.list(&sandbox.path("none"), 1, None, 100)).await, Err(AgentError::NotFound(_))));
    assert!(matches!(
        within(agent.list(&sandbox.path("a/b/file"), 1, None, 100)).await,
        Err(AgentError::NotADirectory(_))
    ));

    let link = within(agent.stat(&sandbox.path("a/link"))).await.unwrap();
    assert_eq!((link.kind, link.link.unwrap().to_text().as_str()), (FileKind::Link, "b"));
    assert_eq!(within(agent.stat(&sandbox.path("a/b/file"))).await.unwrap().size, 5);
    assert_eq!(within(agent.rename(&sandbox.path("a/b/file"), &sandbox.path("moved"))).await.unwrap().size, 5);
    let gone = within(agent.rename(&sandbox.path("a/b/file"), &sandbox.path("moved"))).await;
    assert!(matches!(gone, Err(AgentError::NotFound(path)) if path == sandbox.path("a/b/file")));

    let remove = async |name: &str, scope| within(agent.remove(&sandbox.path(name), scope)).await;
    assert!(matches!(remove("a", RemoveScope::Single).await, Err(AgentError::NotEmpty(_))));
    remove("a", RemoveScope::Tree).await.unwrap();
    remove("moved", RemoveScope::Single).await.unwrap();
    assert!(matches!(remove("moved", RemoveScope::Single).await, Err(AgentError::NotFound(_))));
}

#[tokio::test]
async fn a_name_that_is_not_utf8_is_kept() {
    let sandbox = Sandbox::new().await;
    let mut name = sandbox.path("x").as_bytes().to_vec();
    name.extend_from_slice(b"\xff\xfe");
    let path = GuestPath::new(name).unwrap();
    within(sandbox.agent.write_file(&path, WriteOptions::default(), body(b"odd"))).await.unwrap();
    let entries = within(sandbox.agent.list(&sandbox.path(""), 1, None, 100)).await.unwrap().items;
    assert_eq!(entries.len(), 1);
    assert!(entries[0].path.as_bytes().ends_with(b"x\xff\xfe"));
    assert_eq!(read(&sandbox, &path, 0, None).await, b"odd");
}

#[tokio::test]
async fn a_listing_longer_than_any_window_comes_whole() {
    let sandbox = Sandbox::new().await;
    let long = "long".repeat(50);
    for number in 0..800 {
        fs::write(sandbox.host_path(&format!("{long}{number:03}")), "").unwrap();
    }
    let page = within(sandbox.agent.list(&sandbox.path(""), 1, None, 1000)).await.unwrap();
    assert!(page.items.len() == 800 && !page.more);
    assert_eq!(page.items[799].path, sandbox.path(&format!("{long}799")));
}

#[tokio::test]
async fn a_listing_comes_page_by_page_in_its_order() {
    let sandbox = Sandbox::new().await;
    for name in ["a", "a b", "a-b", "a/b", "a/b/c", "b"] {
        fs::create_dir_all(sandbox.host_path(name)).unwrap();
    }
    let whole = within(sandbox.agent.list(&sandbox.path(""), 9, None, 100)).await.unwrap();
    assert_eq!((whole.items.len(), whole.more), (6, false));
    for most in 1..=7 {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = within(sandbox.agent.list(&sandbox.path(""), 9, after.as_ref(), most)).await.unwrap();
            assert!(page.items.len() == most || !page.more, "{page:?}");
            all.extend(page.items);
            if !page.more {
                break;
            }
            after = all.last().map(|last| last.path.clone());
        }
        assert_eq!(all, whole.items, "{most} at a time");
    }
}

#[tokio::test]
async fn a_directory_nested_deeper_than_any_path_is_removed() {
    let sandbox = Sandbox::new().await;
    fs::create_dir(sandbox.host_path("top")).unwrap();
    let mut directory = fs::File::open(sandbox.host_path("top")).unwrap();
    for _ in 0..800 {
        rustix::fs::mkdirat(&directory, "deeper", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        directory = rustix::fs::openat(&directory, "deeper", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    within(sandbox.agent.remove(&sandbox.path("top"), RemoveScope::Tree)).await.unwrap();
    assert!(!sandbox.host_path("top").exists());
}

#[tokio::test]
async fn owners_are_set_and_named() {
    let sandbox = Sandbox::new().await;
    if !rustix::process::geteuid().is_root() {
        dorm_skip::skip("only root can give files away");
        return;
    }
    let options = WriteOptions { owner: Some("nobody".parse().unwrap()), parents: Parents::Create, mode: Some(0o600) };
    let stat = within(sandbox.agent.write_file(&sandbox.path("new/file"), options, body(b"x"))).await.unwrap();
    assert_eq!((stat.owner.as_deref(), stat.mode), (Some("nobody"), 0o600));
    let stat = within(sandbox.agent.stat(&sandbox.path("new"))).await.unwrap();
    assert_eq!(stat.owner.as_deref(), Some("nobody"));
    let mode = fs::metadata(sandbox.host_path("new/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}
