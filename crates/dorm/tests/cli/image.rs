//! `dorm image`.

use serde_json::json;

use crate::world::{World, write};

#[tokio::test]
async fn an_image_is_imported_listed_used_and_removed() {
    let world = World::new().await;
    write(&world.path("rootfs/etc/motd"), b"hello");
    let rows = world.table(&["image", "import", "rootfs", "--tag", "mine"]).await;
    assert_eq!(rows[0], ["IMAGE", "TAGS", "SIZE", "FILES", "AGE", "FROM"]);
    assert_eq!((rows[1][0].len(), rows[1][1].as_str()), (12, "mine"));
    let mut tags: Vec<_> = world.table(&["image", "ls"]).await[1..].iter().map(|row| row[1].clone()).collect();
    tags.sort();
    assert_eq!(tags, ["base", "mine"]);
    assert_eq!(world.dorm(&["sbx", "create", "web", "--image", "mine"]).await.code, 0);
    world.dorm(&["image", "rm", "mine"]).await.failed(4, "error: ");
    assert_eq!(world.dorm(&["sbx", "terminate", "web"]).await.code, 0);
    let removed = world.dorm(&["image", "rm", "mine"]).await;
    assert_eq!((removed.code, removed.stderr.as_str()), (0, "image mine is removed\n"));
    let images = world.json(&["image", "ls", "-o", "json"]).await;
    assert_eq!((images.as_array().unwrap().len(), &images[0]["tags"]), (1, &json!(["base"])));
}

#[tokio::test]
async fn what_is_no_image_is_refused() {
    let world = World::new().await;
    write(&world.path("note"), b"text");
    assert_ne!(world.dorm(&["image", "import", "no-such-file", "--tag", "x"]).await.code, 0);
    assert_ne!(world.dorm(&["image", "import", "note", "--tag", "x"]).await.code, 0);
    world.dorm(&["image", "rm", "nothing"]).await.failed(3, "nothing");
    assert_eq!(world.json(&["image", "ls", "-o", "json"]).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_oci_layout_is_exported_imported_and_described() {
    let world = World::new().await;
    write(&world.path("rootfs/etc/motd"), b"hello");
    assert_eq!(world.dorm(&["image", "import", "rootfs", "--tag", "mine"]).await.code, 0);
    let rows = world.table(&["image", "export", "mine", "image.tar"]).await;
    assert_eq!(rows[0], ["IMAGE", "FILE", "SIZE", "MANIFEST"]);
    let again = world.dorm(&["image", "export", "mine", "image.tar"]).await;
    assert_ne!(again.code, 0, "a file that is there is left alone");
    assert_eq!(world.dorm(&["image", "import", "image.tar", "--tag", "localhost:5000/team/mine:1"]).await.code, 0);
    let rows = world.table(&["image", "describe", "localhost:5000/team/mine:1"]).await;
    assert!(rows.contains(&vec!["layers".to_owned(), "1".to_owned()]), "{rows:?}");
    assert_eq!(world.dorm(&["sbx", "create", "web", "--image", "localhost:5000/team/mine:1"]).await.code, 0);
    world.dorm(&["sbx", "create", "--image", "localhost:5000/team/other"]).await.failed(3, "other");
    world.dorm(&["sbx", "create", "--image", "localhost:5000/team/other", "--pull", "never"]).await.failed(3, "other");
    world.dorm(&["sbx", "create", "--image", "mine", "--start"]).await.failed(2, "nothing about what to start");
}

#[tokio::test]
async fn a_daemon_that_is_asked_by_its_address_gets_and_sends_the_bytes() {
    let world = World::new().await;
    write(&world.path("rootfs/etc/motd"), b"hello");
    let server = format!("http://{}", world.address);
    let remote = ["--server", &server];
    assert_eq!(world.dorm(&["image", "import", "rootfs", "--tag", "mine"]).await.code, 0);
    let rows = world.table(&[&["image", "export", "mine", "image.tar"][..], &remote].concat()).await;
    assert_eq!(rows[0], ["IMAGE", "FILE", "SIZE", "MANIFEST"]);
    let again = world.dorm(&[&["image", "export", "mine", "image.tar"][..], &remote].concat()).await;
    again.failed(1, "exists");
    world.dorm(&["image", "export", "mine", "here.tar"]).await;
    let (far, near) = (world.path("image.tar"), world.path("here.tar"));
    assert!(std::fs::read(far).unwrap() == std::fs::read(near).unwrap(), "the same image gives the same bytes");
    let rows = world.table(&[&["image", "import", "image.tar", "--tag", "sent"][..], &remote].concat()).await;
    assert_eq!(rows[1][1], "sent");
    let refused = world.dorm(&[&["image", "import", "rootfs", "--tag", "x"][..], &remote].concat()).await;
    refused.failed(2, "only archives can be imported");
    assert_ne!(world.dorm(&[&["image", "import", "absent"][..], &remote].concat()).await.code, 0);
    write(&world.path("note"), b"text");
    world.dorm(&[&["image", "import", "note"][..], &remote].concat()).await.failed(2, "cannot import");
}
