//! Files and processes in real sandboxes.

use serde_json::{Value, json};

use crate::place::Place;

/// Creates ten thousand files, one after another, without starting a process.
const WRITER: &str = "cd /watched && i=0; while [ $i -lt 10000 ]; do : > $i; i=$((i+1)); done";

async fn take_all(daemon: &dorm_testing::Daemon, events: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = "0".to_owned();
    loop {
        let page = daemon.get(&format!("{events}?after={after}")).await.unwrap();
        all.extend(page["events"].as_array().unwrap().iter().cloned());
        after = page["next"].as_str().unwrap().to_owned();
        if page["more"] == false {
            return all;
        }
    }
}

#[tokio::test]
async fn a_watcher_loses_nothing_although_the_sandbox_is_suspended_meanwhile() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let sandbox = format!("/sandboxes/{id}");
    daemon.post(&format!("{sandbox}/files/mkdir"), json!({ "path": "/watched" })).await.unwrap();
    let made = daemon.post(&format!("{sandbox}/watchers"), json!({ "path": "/watched" })).await.unwrap();
    let events = format!("{sandbox}/watchers/{}/events", made["watcher"]);
    let writer = daemon.post(&format!("{sandbox}/processes"), json!({ "shell": WRITER })).await.unwrap();
    for residence in ["parked", "evicted"] {
        daemon.act(&id, "suspend").await.unwrap();
        if residence == "evicted" {
            daemon.act(&id, "evict").await.unwrap();
        }
        daemon.act(&id, "resume").await.unwrap();
    }
    let ended = daemon.get(&format!("{sandbox}/processes/{}/wait", writer["process"])).await.unwrap();
    assert_eq!(ended["exit_code"], 0, "{ended}");
    let changes = take_all(daemon, &events).await;
    let created: Vec<_> = changes.iter().filter(|change| change["kind"] == "created").map(|one| &one["path"]).collect();
    assert_eq!(created.len(), 10_000, "{:?}", changes.iter().find(|change| change["kind"] == "overflow"));
    assert!((0..10_000).zip(created).all(|(number, path)| *path == format!("/watched/{number}")));
    place.end(&[]).await;
}

#[tokio::test]
async fn a_process_is_killed_with_descendants_that_have_left_its_session() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let processes = format!("/sandboxes/{id}/processes");
    // The first child is left by its parents, in a session of its own.
    let script = "(setsid sh -c 'setsid sleep 1001 >/dev/null 2>&1 &' &) ; setsid sleep 1001 & sleep 1001 & wait";
    let alive = "cat /proc/[0-9]*/comm | grep -cx sleep";
    let process = daemon.post(&processes, json!({ "shell": script, "label": "tree" })).await.unwrap();
    let count = async || daemon.exec(&id, &["sh", "-c", alive]).await.unwrap().1.trim().to_owned();
    dorm_testing::until(crate::place::PATIENCE, "three sleep", || async { Ok(count().await == "3") }).await.unwrap();
    let listed = daemon.get(&format!("{processes}?label=tree")).await.unwrap();
    assert_eq!(listed["processes"][0]["process"], process["process"], "{listed}");
    let by_pid = daemon.get(&format!("{processes}?pid={}", process["pid"])).await.unwrap();
    assert_eq!(by_pid, listed);
    let kill = format!("{processes}/{}/kill", process["process"]);
    assert_eq!(daemon.post(&kill, json!({})).await.unwrap(), json!({ "killed": 4 }));
    assert_eq!(count().await, "0");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_file_that_is_written_in_place_keeps_its_inode_and_its_attributes() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let sandbox = format!("/sandboxes/{id}");
    daemon.write(&id, "/work/file", b"0123456789".to_vec()).await.unwrap();
    let inode = async || daemon.exec(&id, &["stat", "-c", "%i", "/work/file"]).await.unwrap().1;
    let before = inode().await;
    let path = "/sandboxes/web/files?path=/work/file";
    for (query, body, expected) in [("offset=4", "xy", "0123xy6789"), ("append=true", "z", "0123xy6789z")] {
        let put = daemon.request(reqwest::Method::PUT, &format!("{path}&{query}")).body(body);
        put.send().await.unwrap().error_for_status().unwrap();
        assert_eq!(daemon.exec(&id, &["cat", "/work/file"]).await.unwrap().1, expected);
    }
    assert_eq!(inode().await, before);
    let attributes = json!({ "attributes": [{ "name": "user.kind", "value": "report" }] });
    let set = json!({ "path": "/work/file", "set": attributes["attributes"] });
    assert_eq!(daemon.post(&format!("{sandbox}/files/attributes"), set).await.unwrap(), attributes);
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    let after = daemon.get(&format!("{sandbox}/files/attributes?path=/work/file")).await.unwrap();
    assert_eq!(after, attributes);
    let user = daemon.post(&format!("{sandbox}/exec"), json!({ "shell": "echo $SHELL $HOME", "user": "nobody" })).await;
    assert_eq!(user.unwrap()["stdout"], "/usr/sbin/nologin /nonexistent\n");
    place.end(&[]).await;
}
