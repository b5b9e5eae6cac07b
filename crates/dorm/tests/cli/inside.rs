//! Searches, watchers, attributes and services from the command line.

use serde_json::json;

use crate::world::{World, eventually};

#[tokio::test]
async fn files_and_lines_are_found() {
    let world = World::new().await;
    world.named("web").await;
    for path in ["/work/a.rs", "/work/b/c.rs"] {
        let script = format!("mkdir -p /work/b; echo the needle > {path}");
        assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", &script]).await.code, 0, "{path}");
    }
    let found = world.dorm(&["sbx", "find", "web", "/work", "--name", "*.rs"]).await;
    assert_eq!((found.code, found.text().as_str()), (0, "/work/a.rs\n/work/b/c.rs\n"));
    let found = world.dorm(&["sbx", "grep", "web", "NEED.E", "/work", "-i", "--limit", "1"]).await;
    assert_eq!(found.text(), "/work/a.rs:1:the needle\n");
    let said = found.stderr;
    assert!(said.contains("the search is incomplete, there are more results"), "{said}");
    let found = world.json(&["sbx", "find", "web", "/work", "--type", "directory", "-o", "json"]).await;
    assert_eq!((&found["files"][0]["path"], &found["search"]["truncated_by"]), (&json!("/work/b"), &json!(null)));
    world.dorm(&["sbx", "grep", "web", "(", "/work"]).await.failed(2, "not a regular expression");
    world.dorm(&["sbx", "find", "web", "/nowhere"]).await.failed(3, "there is no '/nowhere'");
}

#[tokio::test]
async fn watchers_keep_changes_and_attributes_are_changed() {
    let world = World::new().await;
    world.named("web").await;
    let made = world.json(&["sbx", "watch", "create", "web", "/root", "-r", "-o", "json"]).await;
    let watcher = made["watcher"].to_string();
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo x > /root/file"]).await.code, 0);
    let changes = world.json(&["sbx", "watch", "take", "web", &watcher, "-o", "json"]).await;
    assert_eq!((&changes["events"][0]["path"], &changes["events"][0]["number"]), (&json!("/root/file"), &json!(1)));
    let next = changes["next"].as_str().unwrap();
    let table = world.dorm(&["sbx", "watch", "take", "web", &watcher]).await;
    assert!(table.text().starts_with("1 created /root/file\n"));
    let rest = world.json(&["sbx", "watch", "take", "web", &watcher, "--after", next, "-o", "json"]).await;
    assert_eq!(rest["events"], json!([]));
    assert_eq!(world.json(&["sbx", "watch", "ls", "web", "-o", "json"]).await[0]["watcher"], made["watcher"]);
    assert_eq!(world.dorm(&["sbx", "watch", "rm", "web", &watcher]).await.code, 0);
    world.dorm(&["sbx", "watch", "rm", "web", &watcher]).await.failed(3, "there is no watcher");

    let set = ["sbx", "attr", "web", "/root/file", "--set", "user.kind=report", "-o", "json"];
    let expected = json!({"attributes": [{"name": "user.kind", "value": "report"}]});
    assert_eq!(world.json(&set).await, expected);
    assert_eq!(world.json(&["sbx", "attr", "web", "/root/file", "-o", "json"]).await, expected);
    let removed = ["sbx", "attr", "web", "/root/file", "--remove", "user.kind", "-o", "json"];
    assert_eq!(world.json(&removed).await, json!({"attributes": []}));
    world.dorm(&["sbx", "attr", "web", "/root/file", "--set", "kind=x"]).await.failed(2, "user.");
}

#[tokio::test]
async fn services_are_started_listed_and_stopped() {
    let world = World::new().await;
    world.named("web").await;
    let start = [
        "sbx",
        "service",
        "start",
        "web",
        "it",
        "--restart",
        "on-failure",
        "--restart-delay",
        "1ms",
        "--max-restarts",
        "1",
        "-o",
        "json",
        "--",
        "sh",
        "-c",
        "echo run; exit 3",
    ];
    assert_eq!(world.json(&start).await["restart"], "on_failure");
    let state = async || world.json(&["sbx", "service", "ls", "web", "-o", "json"]).await[0]["state"].clone();
    eventually("it has failed", async || state().await == "failed").await;
    let logs = world.dorm(&["sbx", "service", "logs", "web", "it", "-f"]).await;
    assert_eq!((logs.code, logs.stdout.as_slice()), (0, &b"run\nrun\n"[..]));
    let events = world.dorm(&["sbx", "service", "events", "web", "it"]).await.text();
    assert!(events.contains("gave_up") || events.contains("gave up"), "{events}");
    let long = ["sbx", "service", "start", "web", "it", "--health", "http://:8000/x", "--", "sleep", "1000000"];
    assert_eq!(world.dorm(&long).await.code, 0);
    world.dorm(&long).await.failed(4, "the service 'it' is active");
    let table = world.table(&["sbx", "service", "ls", "web"]).await;
    assert_eq!(&table[1][..2], ["it", "running"], "{table:?}");
    let stopped = world.json(&["sbx", "service", "stop", "web", "it", "-o", "json"]).await;
    assert_eq!(stopped["state"], "stopped");
    assert_eq!(world.dorm(&["sbx", "service", "rm", "web", "it"]).await.code, 0);
    world.dorm(&["sbx", "service", "logs", "web", "it"]).await.failed(3, "there is no service 'it'");
    world.dorm(&["sbx", "service", "start", "web", "it", "--health", "ftp://:1", "--", "true"]).await.failed(2, "ftp");
}

#[tokio::test]
async fn a_command_is_killed_at_its_time_limit() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm(&["sbx", "exec", "web", "--timeout", "10ms", "--", "sleep", "1000000"]).await;
    assert_eq!(ran.code, 137);
    let said = ran.stderr;
    assert!(said.contains("killed at its time limit"), "{said}");
}
