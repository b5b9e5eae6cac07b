//! `dorm sbx checkpoint` and `clone`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_snapshot_is_taken_listed_described_used_and_removed() {
    let world = World::new().await;
    let source = world.named("web").await;
    let rows = world.table(&["sbx", "checkpoint", "web"]).await;
    assert_eq!(rows[0], ["SNAPSHOT", "KIND", "STATUS", "SANDBOX", "GENERATION", "SIZE", "AGE"]);
    let id = rows[1][0].as_str();
    assert_eq!(&rows[1][1..5], ["memory", "completed", source.as_str(), "1"]);
    let listed = world.table(&["sbx", "checkpoint", "ls", "--sandbox", &source]).await;
    assert_eq!((listed.len(), listed[1][0].as_str()), (2, id));
    let described = world.dorm(&["sbx", "checkpoint", "describe", id]).await;
    assert!(described.rows().contains(&vec!["sandbox".to_owned(), source.clone()]), "{described:?}");
    let copy = world.json(&["sbx", "create", "copy", "--snapshot", id, "-o", "json"]).await;
    assert_eq!((&copy["snapshot"], &copy["state"]), (&json!(id), &json!("running")));
    let removed = world.dorm(&["sbx", "checkpoint", "rm", id]).await;
    assert_eq!((removed.code, removed.text().as_str()), (0, ""));
    assert_eq!(world.json(&["sbx", "checkpoint", "ls", "-o", "json"]).await, json!([]));
    world.dorm(&["sbx", "checkpoint", "describe", id]).await.failed(3, id);
    world.dorm(&["sbx", "checkpoint", "rm", id]).await.failed(3, id);
}

#[tokio::test]
async fn a_filesystem_snapshot_is_refused_for_now() {
    let world = World::new().await;
    world.named("web").await;
    world.dorm(&["sbx", "checkpoint", "web", "--checkpoint-type", "filesystem"]).await.refused(
        2,
        "error: filesystem snapshots are not possible yet\n  \
         next: take one with --checkpoint-type memory, which keeps the files, too\n",
    );
    world.dorm(&["sbx", "checkpoint"]).await.failed(2, "<ID>");
    world.dorm(&["sbx", "checkpoint", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn what_a_snapshot_fixes_cannot_be_changed() {
    let world = World::new().await;
    world.named("web").await;
    let snapshot = world.json(&["sbx", "checkpoint", "web", "-o", "json"]).await["id"].as_str().unwrap().to_owned();
    let ran = world.dorm(&["sbx", "create", "--snapshot", &snapshot, "--memory", "1G"]).await;
    ran.failed(4, &snapshot);
}

#[tokio::test]
async fn a_clone_goes_on_beside_its_source() {
    let world = World::new().await;
    let source = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo both > /tmp/note"]).await.code, 0);
    let ran = world.dorm(&["sbx", "clone", "web", "--name", "twin"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.starts_with("cloned through snapshot "), "{ran:?}");
    let rows = ran.rows();
    assert_eq!((rows[1][1].as_str(), rows[1][2].as_str()), ("twin", "running"));
    assert_ne!(rows[1][0], source);
    for name in ["web", "twin"] {
        assert_eq!(world.dorm(&["sbx", "exec", name, "--", "cat", "/tmp/note"]).await.text(), "both\n");
    }
    let cloned = world.json(&["sbx", "clone", "web", "-o", "json"]).await;
    assert_eq!((&cloned["sandbox"]["name"], &cloned["snapshot"]["source"]), (&json!(null), &json!(source)));
    world.dorm(&["sbx", "clone", "web", "--name", "twin"]).await.failed(4, "twin");
}

#[tokio::test]
async fn a_fork_makes_as_many_as_asked_for_with_what_is_asked_for() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo all > /tmp/note"]).await.code, 0);
    let ran =
        world.dorm(&["sbx", "fork", "web", "-n", "3", "--name", "worker", "--label", "role=b", "-e", "A=1"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows = ran.rows();
    assert_eq!(rows[0], ["CHILD", "NAME", "STATE"]);
    assert_eq!(rows[1][2], "running");
    let names: Vec<_> = rows[1..].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(names, ["worker-1", "worker-2", "worker-3"]);
    for name in names {
        assert_eq!(world.dorm(&["sbx", "exec", name, "--", "cat", "/tmp/note"]).await.text(), "all\n");
        let told = world.json(&["sbx", "describe", name, "-o", "json"]).await;
        assert_eq!(told["labels"]["role"], "b");
    }
    let forked = world.json(&["sbx", "fork", "web", "-n", "2", "-o", "json"]).await;
    assert_eq!(forked["children"].as_array().map(Vec::len), Some(2));
    world.dorm(&["sbx", "fork", "web", "-n", "3", "--name", "worker"]).await.failed(4, "worker-1");
    world.dorm(&["sbx", "fork", "web", "-n", "0"]).await.failed(2, "1 to 256 children");
    world.dorm(&["sbx", "fork", "web", "-n", "9999"]).await.failed(2, "1 to 256 children");
    world.dorm(&["sbx", "fork", "nobody"]).await.failed(3, "nobody");
}

#[tokio::test]
async fn a_snapshot_has_labels_and_a_time_to_go() {
    let world = World::new().await;
    world.named("web").await;
    let asked = ["sbx", "checkpoint", "web", "--expires", "1h", "--label", "why=test", "-o", "json"];
    let snapshot = world.json(&asked).await;
    assert_eq!(snapshot["labels"]["why"], "test");
    assert!(snapshot["expires_at"].is_string(), "{snapshot}");
    let id = snapshot["id"].as_str().unwrap();
    let described = world.dorm(&["sbx", "checkpoint", "describe", id]).await;
    assert!(described.rows().contains(&vec!["labels".to_owned(), "why=test".to_owned()]), "{described:?}");
    assert_eq!(world.dorm(&["sbx", "checkpoint", "rm", "--when-free", id]).await.code, 0);
}
