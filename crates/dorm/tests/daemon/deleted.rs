//! Deleted and still open files on volumes, in sandboxes that are suspended.

use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, PATIENCE, Place};

/// Answers each line of its input with one line. One of its threads is always busy; its child
/// shares the open file.
const PROGRAM: &str = r#"
import mmap, os, sys, threading
name = "/data/scratch"
fd = os.open(name, os.O_RDWR | os.O_CREAT)
other = os.open(name, os.O_RDONLY)
os.unlink(name)
os.write(fd, b"hello")
ask, told = os.pipe(), os.pipe()
if os.fork() == 0:
    while os.read(ask[0], 1):
        os.write(fd, b"c")
        os.write(told[1], b"x")
    os._exit(0)
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
mapped = None
for line in sys.stdin:
    word, *rest = line.split()
    if word == "write":
        answer = os.write(fd, rest[0].encode())
    elif word == "child":
        os.write(ask[1], b"x")
        answer = os.read(told[0], 1)
    elif word == "read":
        answer = os.pread(fd, 100, 0).decode()
    elif word == "other":
        answer = os.pread(other, 100, 0).decode() + " from " + str(os.lseek(other, 0, os.SEEK_CUR))
    elif word == "offset":
        answer = os.lseek(fd, 0, os.SEEK_CUR)
    elif word == "map":
        mapped, answer = mmap.mmap(fd, 5), "mapped"
    elif word == "unmap":
        answer = mapped.close()
    print(answer, flush=True)
"#;

struct Program {
    path: String,
    asked: usize,
}

impl Program {
    async fn start(daemon: &Daemon, id: &str) -> Self {
        daemon.write(id, "/root/program.py", PROGRAM.as_bytes().to_vec()).await.unwrap();
        let asked = json!({ "argv": ["python3", "/root/program.py"], "stdin": "pipe" });
        let started = daemon.post(&format!("/sandboxes/{id}/processes"), asked).await.unwrap();
        Self { path: format!("/sandboxes/{id}/processes/{}", started["process"]), asked: 0 }
    }

    async fn ask(&mut self, daemon: &Daemon, line: &str) -> String {
        let said = daemon.request(Method::POST, &format!("{}/stdin", self.path)).body(format!("{line}\n")).send();
        assert!(said.await.unwrap().status().is_success(), "{line}");
        self.asked += 1;
        until(PATIENCE, line, || async { Ok(self.output(daemon).await?.len() == self.asked) }).await.unwrap();
        self.output(daemon).await.unwrap().pop().unwrap()
    }

    async fn output(&self, daemon: &Daemon) -> anyhow::Result<Vec<String>> {
        let events = daemon.request(Method::GET, &format!("{}/output?follow=false", self.path)).send().await?;
        let events = events.text().await?;
        let data = events.split("\n\n").filter(|event| event.contains("event: std"));
        let data = data.filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data:")));
        let said: String = data
            .filter_map(|data| Some(serde_json::from_str::<Value>(data).ok()?["data"].as_str()?.to_owned()))
            .collect();
        Ok(said.lines().map(str::to_owned).collect())
    }
}

async fn web(daemon: &Daemon) -> Value {
    daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 << 20 })).await.unwrap();
    json!({ "name": "web", "image": "base", "volumes": [{ "volume": "data", "path": "/data" }] })
}

#[tokio::test]
async fn an_open_deleted_file_on_a_volume_sleeps_with_its_sandbox_and_stays_shared() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, web(daemon).await).await;
    let id = counter.id.clone();
    let mut program = Program::start(daemon, &id).await;
    // A program that only writes, as shells do.
    let writes = "exec 7>/data/log; rm /data/log; touch /data/ready; while :; do echo x >&7; sleep 0.1; done";
    daemon.post(&format!("/sandboxes/{id}/processes"), json!({ "argv": ["sh", "-c", writes] })).await.unwrap();
    let ready = || async { Ok(daemon.exec(&id, &["test", "-e", "/data/ready"]).await?.0 == 0) };
    until(PATIENCE, "the shell writes", ready).await.unwrap();
    assert_eq!(program.ask(daemon, "read").await, "hello");
    for (evicted, written) in [(false, "helloc1"), (true, "helloc1c2")] {
        daemon.act(&id, "suspend").await.unwrap();
        if evicted {
            daemon.act(&id, "evict").await.unwrap();
        }
        daemon.act(&id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        // A write of the child moves the offset of both.
        program.ask(daemon, "child").await;
        program.ask(daemon, if evicted { "write 2" } else { "write 1" }).await;
        assert_eq!(program.ask(daemon, "read").await, written);
        assert_eq!(program.ask(daemon, "offset").await, written.len().to_string());
        assert_eq!(program.ask(daemon, "other").await, format!("{written} from 0"));
    }
    let (_, here) = daemon.exec(&id, &["sh", "-c", "ls -A /data; ls -A / | grep kept"]).await.unwrap();
    assert_eq!(here, "ready\n");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_deleted_file_on_a_volume_that_is_mapped_is_named_and_the_sandbox_continues() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, web(daemon).await).await;
    let id = counter.id.clone();
    let mut program = Program::start(daemon, &id).await;
    program.ask(daemon, "map").await;
    let suspend = format!("/sandboxes/{id}/suspend");
    let refused = daemon.try_ask(Method::POST, &suspend, Some(json!({}))).await.unwrap();
    let why = refused.body["detail"].as_str().unwrap_or_default();
    assert!(refused.status >= 400, "{refused:?}");
    assert!(why.contains("/data/scratch") && why.contains("(python3) has mapped it"), "{why}");
    assert_eq!(daemon.describe(&id).await.unwrap()["state"], "running");
    counter.is_whole(daemon).await;
    program.ask(daemon, "unmap").await;
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(program.ask(daemon, "read").await, "hello");
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_deleted_file_on_a_volume_is_copied_for_processes_that_start_meanwhile() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counter = Counter::create(daemon, web(daemon).await).await;
    let id = counter.id.clone();
    for round in 0..6 {
        let ready = format!("/data/ready{round}");
        // Each process that it starts has the deleted file open, too.
        let starts = format!("exec 7>/data/log; rm /data/log; touch {ready}; while :; do /bin/true; done");
        let asked = json!({ "argv": ["sh", "-c", starts] });
        let shell = daemon.post(&format!("/sandboxes/{id}/processes"), asked).await.unwrap();
        let is_ready = || async { Ok(daemon.exec(&id, &["test", "-e", &ready]).await?.0 == 0) };
        until(PATIENCE, "the shell starts others", is_ready).await.unwrap();
        daemon.act(&id, "suspend").await.unwrap();
        daemon.act(&id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        let kill = format!("/sandboxes/{id}/processes/{}/kill", shell["process"]);
        daemon.post(&kill, json!({})).await.unwrap();
    }
    place.end(&[]).await;
}
