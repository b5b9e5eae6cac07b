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

#[tokio::test]
async fn a_search_finds_files_and_lines_and_passes_over_what_is_not_stored() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let script = "mkdir -p /work/a/b && cd /work && echo 'the needle' > a/b/one.txt && ln -s / a/loop && \
                  mkfifo pipe && printf '\\0needle' > binary && printf needle > \"$(printf '\\377')\" && mkdir shut && \
                  echo needle > shut/file && chmod 0 shut && i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done";
    assert_eq!(daemon.exec(&id, &["sh", "-c", script]).await.unwrap(), (0, String::new()));
    let files = format!("/sandboxes/{id}/files");
    let found = daemon.get(&format!("{files}/find?path=/work&name=*.txt")).await.unwrap();
    assert_eq!(found["files"][0]["path"], "/work/a/b/one.txt", "{found}");
    assert_eq!((&found["search"]["truncated_by"], &found["search"]["entries"]), (&Value::Null, &json!(3009)));
    let found = daemon.get(&format!("{files}/grep?path=/work&pattern=need.e")).await.unwrap();
    let lines: Vec<_> = found["lines"].as_array().unwrap().iter().map(|line| &line["text"]).collect();
    assert_eq!(lines, ["the needle", "needle", "needle"], "{found}");
    assert_eq!((&found["search"]["binary_files"], &found["search"]["truncated_by"]), (&json!(1), &Value::Null));
    // The whole sandbox, with /proc, /sys and every device.
    let found = daemon.get(&format!("{files}/grep?path=/&pattern=the%20needle&timeout_secs=3000")).await.unwrap();
    let paths: Vec<_> = found["lines"].as_array().unwrap().iter().map(|line| &line["path"]).collect();
    assert_eq!(paths, ["/work/a/b/one.txt"], "{found}");
    assert!(found["search"]["skipped_directories"].as_u64().unwrap() >= 2, "{found}");
    let limited = daemon.get(&format!("{files}/find?path=/work&limit=5")).await.unwrap();
    assert_eq!(
        (&limited["search"]["truncated_by"], limited["files"].as_array().unwrap().len()),
        (&json!("results"), 5)
    );
    place.end(&[]).await;
}

/// A service that counts its starts in a file, and answers requests with their number.
const SERVICE: &str = "import http.server, sys\n\
    starts = int((open('/starts').read() if __import__('os').path.exists('/starts') else '0')) + 1\n\
    open('/starts', 'w').write(str(starts))\n\
    print('start', starts, flush=True)\n\
    class Handler(http.server.BaseHTTPRequestHandler):\n\
    \x20   def do_GET(self):\n\
    \x20       self.send_response(200); self.end_headers(); self.wfile.write(str(starts).encode())\n\
    \x20   def log_message(self, *_): pass\n\
    http.server.ThreadingHTTPServer(('127.0.0.1', 8080), Handler).serve_forever()\n";

#[tokio::test]
async fn a_service_continues_across_a_suspend_and_the_death_of_the_daemon_without_a_restart() {
    let mut place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let service = json!({
        "name": "server", "argv": ["python3", "-c", SERVICE], "restart": "always", "restart_delay_secs": 0.01,
        // Fewer failures than a suspend would cause, if it counted.
        "health": { "port": 8080, "path": "/", "interval_secs": 0.2, "failures": 1, "grace_secs": 60 },
    });
    let path = format!("/sandboxes/{id}/services");
    assert_eq!(daemon.post(&path, service).await.unwrap()["state"], "running");
    let path = format!("{path}/server");
    let healthy = async |daemon: &dorm_testing::Daemon, restarts: u64| {
        let is = async || {
            let service = daemon.get(&path).await.unwrap();
            Ok(service["health"] == "healthy" && service["restarts"] == restarts)
        };
        dorm_testing::until(crate::place::PATIENCE, "the service is healthy", is).await.unwrap();
    };
    healthy(daemon, 0).await;
    for residence in ["parked", "evicted"] {
        daemon.act(&id, "suspend").await.unwrap();
        if residence == "evicted" {
            daemon.act(&id, "evict").await.unwrap();
        }
        daemon.act(&id, "resume").await.unwrap();
        healthy(daemon, 0).await;
    }
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    healthy(daemon, 0).await;
    // The end of its process is noticed also now.
    let process = daemon.get(&path).await.unwrap()["process"].clone();
    daemon.post(&format!("/sandboxes/{id}/processes/{process}/kill"), json!({})).await.unwrap();
    healthy(daemon, 1).await;
    assert_eq!(daemon.exec(&id, &["cat", "/starts"]).await.unwrap().1, "2");
    let events = daemon.get(&format!("{path}/events")).await.unwrap();
    let events_of = |events: &Value| events["events"].as_array().unwrap().clone();
    let kinds: Vec<_> = events_of(&events).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["started", "healthy", "exited", "restarting", "started", "healthy"], "{events}");
    // A boot from files ends it.
    let snapshot = daemon.checkpoint(&id, "filesystem").await.unwrap();
    let booted = daemon.create(json!({ "name": "booted", "snapshot": snapshot["id"] })).await.unwrap();
    let services = daemon.get(&format!("/sandboxes/{booted}/services")).await.unwrap();
    assert_eq!(services, json!({ "services": [] }));
    let stopped = daemon.post(&format!("{path}/stop"), json!({})).await.unwrap();
    assert_eq!((&stopped["state"], &stopped["restarts"]), (&json!("stopped"), &json!(1)), "{stopped}");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_file_in_tmp_can_be_as_large_as_the_disk_and_is_kept_as_before() {
    let place = Place::new();
    let daemon = place.daemon();
    let disk: u64 = 2 << 30;
    let resources = json!({ "memory_bytes": 512 << 20, "disk_bytes": disk });
    let asked = json!({ "name": "web", "image": "base", "resources": resources });
    let id = daemon.create(asked).await.unwrap();
    let sh = async |id: &str, script: &str| daemon.exec(id, &["sh", "-c", script]).await.unwrap();
    assert_eq!(sh(&id, "stat -c '%a %u' /tmp; grep -c ' /tmp ' /proc/mounts").await.1, "1777 0\n0\n");
    // More than the memory limit, and more than the tmpfs of earlier releases.
    assert_eq!(sh(&id, "head -c 1500000000 /dev/zero > /tmp/large && stat -c %s /tmp/large").await.1, "1500000000\n");
    assert_ne!(sh(&id, "head -c 1500000000 /dev/zero > /tmp/more 2>/dev/null").await.0, 0, "the disk has a limit");
    let usage = daemon.get(&format!("/sandboxes/{id}/usage")).await.unwrap();
    assert!(usage["disk_bytes"].as_u64().is_none_or(|used| used > 1_500_000_000), "{usage}");
    assert_eq!(sh(&id, "rm /tmp/large /tmp/more; echo kept > /tmp/file; chmod 640 /tmp/file").await.0, 0);
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    for kind in ["memory", "filesystem"] {
        let snapshot = daemon.checkpoint(&id, kind).await.unwrap();
        let child = daemon.create(json!({ "snapshot": snapshot["id"] })).await.unwrap();
        for id in [&id, &child] {
            let said = sh(id, "cat /tmp/file; stat -c %a /tmp/file; stat -c %a /tmp").await;
            assert_eq!(said, (0, "kept\n640\n1777\n".to_owned()), "{kind}");
        }
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn attributes_survive_a_boot_from_files_and_a_change_of_the_file() {
    let engine = std::env::var("DORM_TEST_RUNSC").unwrap_or_else(|_| "/usr/bin/runsc".to_owned());
    let place = Place::with(&["--runsc", &engine]);
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    daemon.write(&id, "/work/file", b"content".to_vec()).await.unwrap();
    daemon.write(&id, "/work/other", b"content".to_vec()).await.unwrap();
    let long = json!({ "name": "user.a", "value": "x".repeat(3000) });
    let expected = json!({ "attributes": [long, { "name": "user.b", "value": "" }] });
    for path in ["/work/file", "/work"] {
        let set = json!({ "path": path, "set": expected["attributes"] });
        daemon.post(&format!("/sandboxes/{id}/files/attributes"), set).await.unwrap();
    }
    let snapshot = daemon.checkpoint(&id, "filesystem").await.unwrap();
    let booted = daemon.create(json!({ "name": "booted", "snapshot": snapshot["id"] })).await.unwrap();
    let attributes = format!("/sandboxes/{booted}/files/attributes");
    let of = async |path: &str| daemon.get(&format!("{attributes}?path={path}")).await.unwrap();
    assert_eq!(of("/work/other").await, json!({ "attributes": [] }));
    if !engine.ends_with("dorm-runsc") {
        assert_eq!(of("/work/file").await, json!({ "attributes": [] }), "stock gVisor does not list them");
        return place.end(&[]).await;
    }
    for path in ["/work/file", "/work"] {
        assert_eq!(of(path).await, expected, "{path}, as it is in the snapshot");
    }
    // A program that asks for more bytes than the value has gets no more than those.
    let python = "import os; print(sorted(os.listxattr('/work/file')), len(os.getxattr('/work/file', 'user.a')))";
    let said = daemon.exec(&booted, &["python3", "-c", python]).await.unwrap();
    assert_eq!(said, (0, "['user.a', 'user.b'] 3000\n".to_owned()));
    assert_eq!(daemon.exec(&booted, &["sh", "-c", "echo more >> /work/file && chmod 700 /work"]).await.unwrap().0, 0);
    for path in ["/work/file", "/work"] {
        assert_eq!(of(path).await, expected, "{path}, after it was copied to be changed");
    }
    let change = json!({ "path": "/work/file", "set": [{ "name": "user.c", "value": "new" }], "remove": ["user.a"] });
    daemon.post(&attributes, change).await.unwrap();
    let again = daemon.checkpoint(&booted, "filesystem").await.unwrap();
    let third = daemon.create(json!({ "name": "third", "snapshot": again["id"] })).await.unwrap();
    let last = daemon.get(&format!("/sandboxes/{third}/files/attributes?path=/work/file")).await.unwrap();
    let left = [json!({ "name": "user.b", "value": "" }), json!({ "name": "user.c", "value": "new" })];
    assert_eq!(last, json!({ "attributes": left }));
    place.end(&[]).await;
}
