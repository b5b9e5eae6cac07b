//! Calls that wake real sandboxes, and ports of programs that listen on the loopback address alone.

use std::path::Path;

use dorm_testing::Daemon;
use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::place::{PATIENCE, Place};

/// Answers on 127.0.0.1 alone, with a number that it keeps in memory.
const SERVER: &str = "
import http.server, os
secret = os.urandom(8).hex()
open('/run/secret', 'w').write(secret)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(secret.encode())
    def log_message(self, *rest): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(('127.0.0.1', 8000), Answer).serve_forever()
";

/// Starts the server; returns the number that it answers with.
async fn serve(daemon: &Daemon, id: &str) -> String {
    daemon.write(id, "/server.py", SERVER.into()).await.unwrap();
    let process = json!({ "argv": ["python3", "/server.py"] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    dorm_testing::until(PATIENCE, "the server answers", || async { Ok(daemon.visit(id, 8000, "/").await.is_ok()) })
        .await
        .unwrap();
    daemon.exec(id, &["cat", "/run/secret"]).await.unwrap().1
}

/// Runs a command in a terminal and returns whether it printed `expected`.
async fn terminal(daemon: &Daemon, id: &str, expected: &str) -> bool {
    let url = format!("ws://{}/v1/sandboxes/{id}/pty", daemon.address().trim_start_matches("http://"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("x-api-key", daemon.key().parse().unwrap());
    let Ok((mut socket, _)) = tokio_tungstenite::connect_async(request).await else { return false };
    socket.send(Message::binary(b"cat /run/secret; exit\n".to_vec())).await.unwrap();
    let mut shown = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            shown.extend_from_slice(&bytes);
        }
    }
    String::from_utf8_lossy(&shown).contains(expected)
}

#[tokio::test]
async fn a_hundred_callers_wake_a_sandbox_once_and_are_all_answered() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base", "wake": "any" })).await.unwrap();
    let secret = serve(daemon, &id).await;
    for residence in ["parked", "evicted"] {
        daemon.act(&id, "suspend").await.unwrap();
        if residence == "evicted" {
            daemon.act(&id, "evict").await.unwrap();
        }
        let before = daemon.describe(&id).await.unwrap()["generation"].as_u64().unwrap();
        let call = async |number: usize| match number % 4 {
            0 => daemon.exec(&id, &["cat", "/run/secret"]).await.unwrap() == (0, secret.clone()),
            1 => {
                let path = format!("/sandboxes/{id}/files?path=/run/secret");
                daemon.request(Method::GET, &path).send().await.unwrap().text().await.unwrap() == secret
            }
            2 => daemon.visit(&id, 8000, "/").await.unwrap() == secret,
            _ => terminal(daemon, &id, &secret).await,
        };
        let answers = join_all((0..100).map(call)).await;
        let wrong: Vec<_> =
            answers.iter().enumerate().filter(|(_, right)| !**right).map(|(number, _)| number).collect();
        assert_eq!(wrong, [0_usize; 0], "{residence}");
        assert_eq!(daemon.describe(&id).await.unwrap()["generation"], before + 1, "{residence}");
    }
    place.end(&[]).await;
}

#[tokio::test]
async fn a_server_on_the_loopback_address_is_reached_by_the_command_line() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let secret = serve(daemon, &id).await;
    let mut forward = tokio::process::Command::new(Path::new(env!("CARGO_BIN_EXE_dorm")))
        .args(["sbx", "port", "web", "8000", "--local", "0", "--data"])
        .arg(daemon.data())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(forward.stdout.take().unwrap()));
    let url = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), secret);
    // Nothing listens there, neither outside nor inside.
    let refused = daemon.visit(&id, 8001, "/").await.unwrap_err().to_string();
    assert!(refused.contains("port_closed"), "{refused}");
    forward.kill().await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn a_pool_keeps_its_number_through_claims_and_deaths_of_the_daemon() {
    let mut place = Place::new();
    let pool = json!({ "name": "workers", "image": "base", "ready": 8, "resources": { "memory_bytes": 64 << 20 } });
    place.daemon().post("/pools", pool).await.unwrap();
    let mut claimed = std::collections::BTreeSet::new();
    for number in 0..100 {
        if number % 25 == 13 {
            place.daemon_mut().kill().unwrap();
            place.daemon_mut().start_again().unwrap();
        }
        let daemon = place.daemon();
        let sandbox = daemon.post("/pools/workers/claim", json!({ "max_wait_secs": 100 })).await.unwrap();
        let id = sandbox["id"].as_str().unwrap().to_owned();
        assert_eq!(daemon.exec(&id, &["echo", "hello"]).await.unwrap(), (0, "hello\n".to_owned()));
        assert!(claimed.insert(id.clone()), "{id} was claimed twice");
        daemon.act(&id, "terminate").await.unwrap();
    }
    let daemon = place.daemon();
    let has_its_number = || async {
        let list = daemon.get("/sandboxes?limit=1000").await?;
        let living = list["sandboxes"].as_array().unwrap().iter().filter(|one| one["state"] != "terminated").count();
        Ok(living == 8 && daemon.get("/pools/workers").await?["waiting"] == 8)
    };
    dorm_testing::until(PATIENCE, "eight wait, and no others live", has_its_number).await.unwrap();
    daemon.ask(Method::DELETE, "/pools/workers", None).await.unwrap();
    place.end(&[]).await;
}
