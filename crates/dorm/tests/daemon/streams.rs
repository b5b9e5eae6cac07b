//! Thousands of open output streams of one sandbox.

use std::sync::Arc;
use std::time::Duration;

use dorm_testing::Daemon;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::place::Place;

const STREAMS: usize = 2000;
/// Half of the streams follow the first process, the others these.
const PROCESSES: usize = 51;
const LINES: usize = 400;
/// Writes half of its lines, and the other half after the next line of input.
const SCRIPT: &str = "read x; seq 1 200; read x; seq 201 400";

/// One reader of an output, over as many responses as it needs.
struct Reader {
    path: String,
    seen: String,
    /// Where to continue.
    last: Option<String>,
    response: Option<reqwest::Response>,
    rest: Vec<u8>,
}

impl Reader {
    fn new(path: String) -> Self {
        Self { path, seen: String::new(), last: None, response: None, rest: Vec::new() }
    }

    async fn open(&mut self, daemon: &Daemon) {
        let mut request = daemon.request(Method::GET, &self.path);
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        self.rest.clear();
        self.response = Some(request.send().await.unwrap().error_for_status().unwrap());
    }

    /// Returns the next event, its name and its data; `None` at the end of the response.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
                let text: Vec<u8> = self.rest.drain(..end + 2).collect();
                let text = String::from_utf8(text).unwrap();
                let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let Some(kind) = field("event:") else { continue };
                self.last = field("id:").map(str::to_owned).or(self.last.take());
                return Some((kind.to_owned(), serde_json::from_str(field("data:").unwrap()).unwrap()));
            }
            // A response that is cut is over as well.
            let chunk = self.response.as_mut().unwrap().chunk().await.ok().flatten()?;
            self.rest.extend_from_slice(&chunk);
        }
    }

    /// Reads until the last line is this number.
    async fn read_to(&mut self, line: usize) {
        let end = format!("\n{line}\n");
        while !self.seen.ends_with(&end) {
            let (kind, data) = self.next().await.expect("an open stream");
            assert_eq!(kind, "stdout", "{data}");
            assert_eq!(data["offset"].as_u64().unwrap(), self.seen.len() as u64, "nothing is missing or twice");
            assert!(data["read_at"].is_string(), "{data}");
            self.seen.push_str(data["data"].as_str().unwrap());
        }
    }
}

async fn all<F: Future<Output = Reader> + Send + 'static>(readers: impl Iterator<Item = F>) -> Vec<Reader> {
    let tasks: Vec<_> = readers.map(tokio::spawn).collect();
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

/// The resident memory of the agent, in KiB.
async fn agent_kib(daemon: &Daemon, id: &str) -> u64 {
    let status = daemon.exec(id, &["cat", "/proc/1/status"]).await.unwrap().1;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

fn daemon_kib(daemon: &Daemon) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4
}

/// Opens all at once, each over a connection of its own.
async fn open_all(daemon: &Arc<Daemon>, readers: Vec<Reader>) -> Vec<Reader> {
    let at_once = Arc::new(Barrier::new(readers.len()));
    let opening = readers.into_iter().map(|mut reader| {
        let (daemon, at_once) = (Arc::clone(daemon), Arc::clone(&at_once));
        async move {
            at_once.wait().await;
            reader.open(&daemon).await;
            reader
        }
    });
    all(opening).await
}

/// Gives each process a line of input.
async fn feed_all(daemon: &Daemon, processes: &[String]) {
    for path in processes {
        let asked = daemon.request(Method::POST, &format!("{path}/stdin")).body("\n");
        asked.send().await.unwrap().error_for_status().unwrap();
    }
}

/// Reads to the middle of the output.
async fn half(mut reader: Reader) -> Reader {
    reader.read_to(LINES / 2).await;
    reader
}

/// Reads the error that says that the connection to the sandbox has ended.
async fn cut(mut reader: Reader) -> Reader {
    while let Some((kind, data)) = reader.next().await {
        assert_eq!(kind, "error", "{data}");
    }
    reader
}

/// Reads to the end of the process.
async fn rest(mut reader: Reader) -> Reader {
    reader.read_to(LINES).await;
    assert_eq!(reader.next().await.unwrap().0, "exit");
    assert!(reader.next().await.is_none());
    reader
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_output_streams_get_every_byte_in_order_across_a_suspend() {
    let place = Place::new();
    let daemon = Arc::new(Daemon::attach(place.daemon().address(), place.daemon().key(), place.daemon().data()));
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let processes = format!("/sandboxes/{id}/processes");
    let mut paths = Vec::new();
    for _ in 0..PROCESSES {
        let started = daemon.post(&processes, json!({ "shell": SCRIPT, "stdin": "pipe" })).await.unwrap();
        paths.push(format!("{processes}/{}", started["process"]));
    }
    let flood = daemon.post(&processes, json!({ "shell": "cat /dev/zero" })).await.unwrap();
    let before = (agent_kib(&daemon, &id).await, daemon_kib(place.daemon()));
    let reader = |number: usize| {
        let other = 1 + number / 2 % (PROCESSES - 1);
        Reader::new(format!("{}/output", paths[if number.is_multiple_of(2) { 0 } else { other }]))
    };
    let readers = open_all(&daemon, (0..STREAMS).map(reader).collect()).await;
    let stuck = || Reader::new(format!("{processes}/{}/output", flood["process"]));
    let stuck = open_all(&daemon, std::iter::repeat_with(stuck).take(20).collect()).await;
    assert_eq!(daemon.exec(&id, &["echo", "fine"]).await.unwrap(), (0, "fine\n".to_owned()));
    let open = (agent_kib(&daemon, &id).await, daemon_kib(place.daemon()));
    println!("agent and daemon, KiB before and with {STREAMS} streams: {before:?} {open:?}");
    assert!(open.0.saturating_sub(before.0) < 8 << 10, "{before:?} {open:?}");
    assert!(open.1.saturating_sub(before.1) < 160 << 10, "{before:?} {open:?}");

    feed_all(&daemon, &paths).await;
    let readers = all(readers.into_iter().map(half)).await;
    drop(stuck);
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    let readers = all(readers.into_iter().map(cut)).await;
    daemon.act(&id, "resume").await.unwrap();
    let readers = open_all(&daemon, readers).await;
    assert_eq!(daemon.exec(&id, &["echo", "fine"]).await.unwrap(), (0, "fine\n".to_owned()));
    feed_all(&daemon, &paths).await;
    let readers = tokio::time::timeout(Duration::from_secs(120), all(readers.into_iter().map(rest))).await.unwrap();
    let expected: String = (1..=LINES).map(|number| format!("{number}\n")).collect();
    assert_eq!(readers.len(), STREAMS);
    assert!(readers.iter().all(|reader| reader.seen == expected));
    drop((readers, daemon));
    place.end(&[]).await;
}

#[tokio::test]
async fn a_command_with_a_time_limit_gets_input_while_it_runs() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let asked = json!({ "argv": ["cat"], "stdin_open": true, "timeout_secs": 2.0 });
    let request = daemon.request(Method::POST, &format!("/sandboxes/{id}/exec"));
    let response = request.header("accept", "text/event-stream").json(&asked).send().await.unwrap();
    let mut reader = Reader::new(String::new());
    reader.response = Some(response.error_for_status().unwrap());
    let (kind, started) = reader.next().await.unwrap();
    assert_eq!(kind, "started");
    let process = format!("/sandboxes/{id}/processes/{}", started["process"]);
    for text in ["one", "two"] {
        let asked = daemon.request(Method::POST, &format!("{process}/stdin")).body(text);
        asked.send().await.unwrap().error_for_status().unwrap();
        let (kind, data) = reader.next().await.unwrap();
        assert_eq!((kind.as_str(), &data["data"]), ("stdout", &json!(text)));
    }
    // Its limit does not count the time of the suspend, and is not lost by it.
    daemon.act(&id, "suspend").await.unwrap();
    while reader.next().await.is_some() {}
    tokio::time::sleep(Duration::from_secs(3)).await;
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(daemon.get(&process).await.unwrap()["exit"], Value::Null);
    let ended = daemon.get(&format!("{process}/wait")).await.unwrap();
    assert_eq!(ended, json!({ "exit_code": null, "signal": 9, "timed_out": true }));
    place.end(&[]).await;
}
