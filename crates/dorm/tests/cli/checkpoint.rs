//! `dorm sbx checkpoint` and `clone`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_snapshot_is_taken_listed_described_used_and_removed() {
    let world = World::new().await;
    let source = world.named("web").await;
    let rows = world.table(&["sbx", "checkpoint", "web", "--checkpoint-type", "memory"]).await;
    let titles =
        ["SNAPSHOT", "NAME", "KIND", "STATUS", "SANDBOX", "GENERATION", "IMAGE", "PARENT", "ALONE", "SHARED", "AGE"];
    assert_eq!(rows[0], titles);
    let id = rows[1][0].as_str();
    assert_eq!(&rows[1][1..6], ["-", "memory", "completed", source.as_str(), "1"]);
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
async fn a_snapshot_is_of_files_unless_asked_otherwise_and_goes_when_nobody_stands_on_it() {
    let world = World::new().await;
    let source = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo kept > /root/note"]).await.code, 0);
    let taken = world.json(&["sbx", "checkpoint", "web", "-o", "json"]).await;
    assert_eq!((&taken["kind"], &taken["status"]), (&json!("filesystem"), &json!("completed")));
    let id = taken["id"].as_str().unwrap();
    let child = world.json(&["sbx", "create", "child", "--snapshot", id, "--memory", "1G", "-o", "json"]).await;
    assert_eq!((&child["restored"], &child["resources"]["memory_bytes"]), (&json!("filesystem"), &json!(1 << 30)));
    assert_eq!(world.dorm(&["sbx", "exec", "child", "--", "cat", "/root/note"]).await.text(), "kept\n");
    world.dorm(&["sbx", "create", "--snapshot", id, "--disk", "1G"]).await.failed(2, "a disk can only grow");
    let child = child["id"].as_str().unwrap();
    world.dorm(&["sbx", "checkpoint", "rm", id]).await.failed(4, child);
    let described = world.json(&["sbx", "checkpoint", "describe", id, "-o", "json"]).await;
    assert_eq!(described["held_by"], json!([format!("sandbox {child}")]));
    assert_eq!((described["shared_bytes"].as_u64(), &described["source"]), (Some(0), &json!(source)));
    assert_eq!(world.dorm(&["sbx", "terminate", "child"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "checkpoint", "rm", id]).await.code, 0);
    let begun = world.json(&["sbx", "checkpoint", "web", "--no-wait", "-o", "json"]).await;
    assert_eq!(begun["status"], json!("in_progress"));
    world.dorm(&["sbx", "checkpoint"]).await.failed(2, "<ID>");
    world.dorm(&["sbx", "checkpoint", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn a_named_snapshot_serves_as_an_image_with_the_settings_of_its_source() {
    let world = World::new().await;
    let ports = ["--ports", "private", "--port", "8080=public", "--port-host", "localhost:{port}"];
    world.json(&[&["sbx", "create", "web", "--egress", "closed", "-o", "json"], &ports[..]].concat()).await;
    let rows = world.table(&["sbx", "checkpoint", "web", "--name", "my-snap:v2"]).await;
    let id = rows[1][0].as_str();
    assert_eq!(rows[1][1], "my-snap:v2");
    assert_eq!(world.table(&["sbx", "checkpoint", "ls"]).await[1][..2], [id, "my-snap:v2"]);
    let described = world.dorm(&["sbx", "checkpoint", "describe", "my-snap:v2"]).await.rows();
    let inherited = "egress closed, ports private, as localhost:{port}, 8080 public";
    for row in [["id", id], ["name", "my-snap:v2"], ["inherited", inherited]] {
        assert!(described.contains(&row.map(str::to_owned).to_vec()), "{described:?}");
    }
    let taken = format!("the name 'my-snap:v2' is taken by snapshot {id}");
    world.dorm(&["sbx", "checkpoint", "web", "--name", "my-snap:v2"]).await.failed(4, &taken);
    world.dorm(&["sbx", "checkpoint", "web", "--name", "base"]).await.failed(4, "that is the name of an image");
    world.dorm(&["sbx", "checkpoint", "web", "--name", "a b"]).await.failed(2, "'a b' is not the name of a snapshot");

    let made = world.json(&["sbx", "create", "--image", "my-snap:v2", "-o", "json"]).await;
    assert_eq!((&made["snapshot"], &made["egress"]), (&json!(id), &json!("closed")));
    assert_eq!((&made["port_access"], &made["port_host"]), (&json!("private"), &json!("localhost:{port}")));
    let other = ["sbx", "create", "--snapshot", id, "--egress", "public", "--ports", "public", "-o", "json"];
    let made = world.json(&[&other[..], &["--port-host", ""]].concat()).await;
    assert_eq!((&made["egress"], &made["port_access"]), (&json!("public"), &json!("public")));
    assert_eq!((&made["port_host"], &made["port_rules"]["8080"]["access"]), (&json!(null), &json!("public")));
    let header = ["sbx", "create", "--snapshot", id, "--header", "api.example.com: Authorization: Bearer {KEY}"];
    world.dorm(&header).await.failed(2, "would replace the egress of the snapshot");

    world.dorm(&["sbx", "checkpoint", "rm", "my-snap:v2", "--when-free"]).await;
    world.dorm(&["sbx", "create", "--image", "my-snap:v2"]).await.failed(3, "my-snap:v2");
}

#[tokio::test]
async fn what_a_snapshot_fixes_cannot_be_changed() {
    let world = World::new().await;
    world.named("web").await;
    let snapshot = world.json(&["sbx", "checkpoint", "web", "--checkpoint-type", "memory", "-o", "json"]).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let ran = world.dorm(&["sbx", "create", "--snapshot", &snapshot, "--memory", "1G"]).await;
    ran.failed(4, &snapshot);
}

#[tokio::test]
async fn a_clone_continues_beside_its_source() {
    let world = World::new().await;
    let source = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo both > /tmp/note"]).await.code, 0);
    let ran = world.dorm(&["sbx", "clone", "web", "--name", "twin"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.starts_with("cloned from snapshot "), "{ran:?}");
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
