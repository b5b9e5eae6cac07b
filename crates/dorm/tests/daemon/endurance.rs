//! Many cycles, and many sandboxes at once.

use dorm_testing::until;
use serde_json::json;

use crate::place::{Counter, PATIENCE, Place};

/// Keeps a list of checksums in memory and appends to a file, both at each request; the two must
/// always agree.
const KEEPER: &str = r#"
import hashlib, http.server, os
sums = []
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        block = os.urandom(4096)
        with open("/root/grows", "ab") as file:
            file.write(block)
        sums.append(hashlib.sha256(block).hexdigest())
        good = True
        with open("/root/grows", "rb") as file:
            for known in sums:
                good = good and hashlib.sha256(file.read(4096)).hexdigest() == known
            good = good and file.read() == b""
        body = f"{good} {len(sums)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
"#;

#[tokio::test]
async fn two_hundred_cycles_lose_nothing() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    daemon.write(&id, "/root/keeper.py", KEEPER.as_bytes().to_vec()).await.unwrap();
    let process = json!({ "argv": ["python3", "/root/keeper.py"] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    let up = || async { Ok(daemon.visit(&id, 8000, "/").await.is_ok()) };
    until(PATIENCE, "the keeper answers", up).await.unwrap();
    for cycle in 1..=200 {
        daemon.act(&id, "suspend").await.unwrap();
        if cycle % 4 == 0 {
            daemon.act(&id, "evict").await.unwrap();
        }
        let awake = daemon.act(&id, "resume").await.unwrap();
        assert_eq!(awake["generation"], cycle + 1);
        let said = daemon.visit(&id, 8000, "/").await.unwrap();
        assert_eq!(said, format!("True {}", cycle + 1), "cycle {cycle}");
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn twenty_at_the_same_time_all_come_back() {
    let place = Place::new();
    let daemon = place.daemon();
    let mut counters = Vec::new();
    for number in 0..20 {
        let resources = json!({ "memory_bytes": 256 << 20 });
        let asked = json!({ "name": format!("s{number}"), "image": "base", "resources": resources });
        counters.push(Counter::create(daemon, asked).await);
    }
    for evict in [false, true] {
        let asleep = counters.iter().map(|counter| daemon.act(&counter.id, "suspend"));
        for view in futures_util::future::join_all(asleep).await {
            assert_eq!(view.unwrap()["state"], "suspended");
        }
        if evict {
            let evicted = counters.iter().map(|counter| daemon.act(&counter.id, "evict"));
            for view in futures_util::future::join_all(evicted).await {
                view.unwrap();
            }
        }
        let awake = counters.iter().map(|counter| daemon.act(&counter.id, "resume"));
        for view in futures_util::future::join_all(awake).await {
            assert_eq!(view.unwrap()["state"], "running");
        }
        for counter in &mut counters {
            counter.is_whole(daemon).await;
        }
    }
    place.end(&[]).await;
}
