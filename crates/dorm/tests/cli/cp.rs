//! `dorm sbx cp`.

use std::os::unix::fs::PermissionsExt as _;

use crate::world::{World, noise, write};

#[tokio::test]
async fn a_file_is_the_same_after_both_ways() {
    let world = World::new().await;
    world.named("web").await;
    let bytes = noise(5 << 20);
    write(&world.path("in"), &bytes);
    std::fs::set_permissions(world.path("in"), std::fs::Permissions::from_mode(0o750)).unwrap();
    let ran = world.dorm(&["sbx", "cp", "in", "web:/tmp/deep/file"]).await;
    assert_eq!((ran.code, ran.text().as_str(), ran.stderr.as_str()), (0, "", ""));
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/deep/file", "out"]).await.code, 0);
    assert!(std::fs::read(world.path("out")).unwrap() == bytes);
    assert_eq!(std::fs::metadata(world.path("out")).unwrap().permissions().mode() & 0o700, 0o700);
    write(&world.path("empty"), b"");
    assert_eq!(world.dorm(&["sbx", "cp", "empty", "web:/tmp/empty"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/empty", "-"]).await.stdout, b"");
}

#[tokio::test]
async fn in_a_directory_it_keeps_its_name() {
    let world = World::new().await;
    world.named("web").await;
    write(&world.path("note"), b"text");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "mkdir", "/tmp/there"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "cp", "note", "web:/tmp/there"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "cp", "note", "web:/tmp/new/"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/new/note", "-"]).await.stdout, b"text");
    std::fs::create_dir(world.path("here")).unwrap();
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/there/note", "here"]).await.code, 0);
    assert_eq!(std::fs::read(world.path("here/note")).unwrap(), b"text");
}

#[tokio::test]
async fn streams_are_files_too() {
    let world = World::new().await;
    world.named("web").await;
    let bytes = noise(1 << 20);
    assert_eq!(world.dorm_with(&["sbx", "cp", "-", "web:/tmp/stream"], &bytes).await.code, 0);
    let ran = world.dorm(&["sbx", "cp", "web:/tmp/stream", "-"]).await;
    assert_eq!((ran.code, ran.stdout == bytes), (0, true));
}

#[tokio::test]
async fn directories_are_copied_with_all_below() {
    let world = World::new().await;
    world.named("web").await;
    write(&world.path("tree/a"), b"a");
    write(&world.path("tree/deep/er/b"), b"b");
    std::fs::create_dir(world.path("tree/empty")).unwrap();
    assert_eq!(world.dorm(&["sbx", "cp", "tree", "web:/tmp/tree"]).await.code, 0);
    let ran = world.dorm(&["sbx", "cp", "web:/tmp/tree", "back"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(std::fs::read(world.path("back/a")).unwrap(), b"a");
    assert_eq!(std::fs::read(world.path("back/deep/er/b")).unwrap(), b"b");
    assert!(world.path("back/empty").is_dir());
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/tree", "back"]).await.code, 0);
    assert_eq!(std::fs::read(world.path("back/tree/a")).unwrap(), b"a", "it is there now, so the name is kept");
}

#[tokio::test]
async fn a_link_on_its_way_in_is_named_and_the_rest_is_copied() {
    let world = World::new().await;
    world.named("web").await;
    write(&world.path("tree/a"), b"a");
    std::os::unix::fs::symlink("a", world.path("tree/link")).unwrap();
    let ran = world.dorm(&["sbx", "cp", "tree", "web:/tmp/tree"]).await;
    ran.failed(1, "skipped tree/link: links cannot be copied into a sandbox yet\n");
    assert!(ran.stderr.ends_with("error: entries not copied: 1; all others were copied\n"), "{ran:?}");
    assert_eq!(world.dorm(&["sbx", "cp", "web:/tmp/tree/a", "-"]).await.stdout, b"a");
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused() {
    let world = World::new().await;
    world.named("web").await;
    write(&world.path("note"), b"text");
    for (arguments, code, said) in [
        (["web:/no/such", "out"], 3, "there is no /no/such in web"),
        (["web:/no/such", "-"], 3, "/no/such"),
        (["nobody:/etc/hello", "out"], 3, "there is no sandbox 'nobody'"),
        (["note", "nobody:/tmp/x"], 3, "there is no sandbox 'nobody'"),
        (["no-such-file", "web:/tmp/x"], 3, "cannot read no-such-file"),
        (["note", "web:relative"], 2, "the path 'relative' inside web is not absolute"),
        (["note", "copy"], 2, "neither path is in a sandbox"),
        (["web:/a", "web:/b"], 2, "both paths are in sandboxes"),
        (["web:/tmp", "-"], 2, "/tmp"),
    ] {
        let ran = world.dorm(&[["sbx", "cp"], arguments].concat()).await;
        ran.failed(code, said);
    }
    assert!(!world.path("out").exists() && !world.path("copy").exists());
}
