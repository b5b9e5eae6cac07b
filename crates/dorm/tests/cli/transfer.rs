//! `dorm sbx checkpoint export`, `import` and `files`.

use serde_json::{Value, json};

use crate::world::{World, write};

async fn snapshot(world: &World, kind: &str) -> String {
    let taken = world.json(&["sbx", "checkpoint", "web", "--checkpoint-type", kind, "-o", "json"]).await;
    taken["id"].as_str().unwrap().to_owned()
}

async fn listed(world: &World) -> usize {
    world.json(&["sbx", "checkpoint", "ls", "-o", "json"]).await.as_array().unwrap().len()
}

async fn imported(world: &World, file: &str) -> Value {
    world.json(&["sbx", "checkpoint", "import", file, "--label", "from=file", "-o", "json"]).await
}

#[tokio::test]
async fn a_snapshot_is_exported_and_imported_where_there_is_nothing_but_its_image() {
    let (world, other) = (World::new().await, World::new().await);
    let source = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo kept > /root/note"]).await.code, 0);
    for kind in ["filesystem", "memory"] {
        let id = snapshot(&world, kind).await;
        let file = other.path(kind);
        let ran = world.dorm(&["sbx", "checkpoint", "export", &id, file.to_str().unwrap()]).await;
        assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{ran:?}");
        let taken = imported(&other, kind).await;
        assert_ne!(taken["id"], json!(id));
        let told = ["kind", "status", "source", "made_by", "bytes"].map(|name| taken[name].clone());
        let described = world.json(&["sbx", "checkpoint", "describe", &id, "-o", "json"]).await;
        let expected = [json!(kind), json!("completed"), json!(source), json!("import"), described["bytes"].clone()];
        assert_eq!((told, &taken["labels"]["from"]), (expected, &json!("file")));
        let created = ["sbx", "create", kind, "--snapshot", taken["id"].as_str().unwrap()];
        assert_eq!(other.dorm(&created).await.code, 0);
        assert_eq!(other.dorm(&["sbx", "exec", kind, "--", "cat", "/root/note"]).await.text(), "kept\n");
    }
    let id = snapshot(&world, "filesystem").await;
    let piped = world.dorm(&["sbx", "checkpoint", "export", &id, "-"]).await;
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    let taken = other.dorm_with(&["sbx", "checkpoint", "import", "-", "--expires", "1h"], &piped.stdout).await;
    assert_eq!(taken.rows()[1][1..5], ["-", "filesystem", "completed", &source], "{taken:?}");
}

#[tokio::test]
async fn a_file_that_is_no_snapshot_or_not_whole_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    world.named("web").await;
    let id = snapshot(&world, "memory").await;
    let file = world.path("file");
    assert_eq!(world.dorm(&["sbx", "checkpoint", "export", &id, "file"]).await.code, 0);
    let whole = std::fs::read(&file).unwrap();
    write(&world.path("short"), &whole[..whole.len() - 1]);
    write(&world.path("noise"), &crate::world::noise(100_000));
    let mut changed = whole.clone();
    let middle = whole.len() / 2;
    changed[middle] ^= 1;
    write(&world.path("changed"), &changed);
    for name in ["short", "noise", "changed"] {
        let ran = world.dorm(&["sbx", "checkpoint", "import", name]).await;
        ran.failed(2, "cannot import the snapshot from this file");
    }
    world.dorm(&["sbx", "checkpoint", "import", "nowhere"]).await.failed(1, "nowhere");
    world.dorm(&["sbx", "checkpoint", "export", "aaaaaaaaaaaaaaaaaaaa", "x"]).await.failed(3, "aaaaaaaaaaaaaaaaaaaa");
    world.dorm(&["sbx", "checkpoint", "export", &id, "nowhere/x"]).await.failed(1, "nowhere/x");
    assert_eq!(listed(&world).await, 1);
    assert!(!world.path("x").exists());
}

#[tokio::test]
async fn the_files_of_a_memory_snapshot_make_one_of_files() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo kept > /root/note"]).await.code, 0);
    let id = snapshot(&world, "memory").await;
    let files = world.json(&["sbx", "checkpoint", "files", &id, "-o", "json"]).await;
    assert_eq!((&files["kind"], &files["parent"]), (&json!("filesystem"), &json!(id)));
    let files = files["id"].as_str().unwrap();
    assert_eq!(world.dorm(&["sbx", "create", "child", "--snapshot", files]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "exec", "child", "--", "cat", "/root/note"]).await.text(), "kept\n");
    world.dorm(&["sbx", "checkpoint", "files", files]).await.failed(4, "is a filesystem snapshot");
}

#[tokio::test]
async fn memory_in_which_secrets_may_be_is_not_exported_but_its_files_are() {
    let world = World::new().await;
    let mut create = world.command(&["sbx", "create", "web", "--secret", "TOKEN"]);
    create.env("TOKEN", "hunter2");
    assert_eq!(crate::world::end(create, b"").await.code, 0);
    let id = snapshot(&world, "memory").await;
    let clone = world.json(&["sbx", "clone", "web", "--name", "twin", "-o", "json"]).await;
    assert_eq!(clone["sandbox"]["name"], "twin");
    let of_the_clone = world.json(&["sbx", "checkpoint", "twin", "--checkpoint-type", "memory", "-o", "json"]).await;
    for id in [&id[..], of_the_clone["id"].as_str().unwrap()] {
        world.dorm(&["sbx", "checkpoint", "export", id, "file"]).await.failed(4, "has secrets (TOKEN)");
    }
    let files = world.json(&["sbx", "checkpoint", "files", &id, "-o", "json"]).await;
    let files = files["id"].as_str().unwrap();
    assert_eq!(world.dorm(&["sbx", "checkpoint", "export", files, "file"]).await.code, 0);
    let file = std::fs::read(world.path("file")).unwrap();
    assert!(!file.windows(7).any(|part| part == b"hunter2"));
}
