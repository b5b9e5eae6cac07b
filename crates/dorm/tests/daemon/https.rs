//! HTTPS to ports of real sandboxes, with the daemon's own authority, as a client of OpenSSL sees
//! it.

use std::path::Path;
use std::process::Command;

use dorm_testing::Daemon;
use serde_json::json;

use crate::place::{PATIENCE, Place};

/// Sends a GET to a host over TLS and prints the body. Takes the address of the daemon, the file of
/// the authority, the host, and the path.
const CLIENT: &str = "
import http.client, socket, ssl, sys
address, authority, host, path = sys.argv[1:]
name, port = address.rsplit(':', 1)
stream = socket.create_connection((name, int(port)), timeout=120)
stream = ssl.create_default_context(cafile=authority).wrap_socket(stream, server_hostname=host)
connection = http.client.HTTPConnection(host)
connection.sock = stream
connection.request('GET', path, headers={'Host': host})
answer = connection.getresponse()
assert answer.status == 200, (answer.status, answer.read())
sys.stdout.write(answer.read().decode())
";

fn get(daemon: &Daemon, authority: &Path, host: &str, path: &str) -> Result<String, String> {
    let address = daemon.address().trim_start_matches("http://");
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT, address]).arg(authority).args([host, path]);
    let ran = command.output().unwrap();
    match ran.status.success() {
        true => Ok(String::from_utf8(ran.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
    }
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_reaches_ports_over_https_also_after_a_restart() {
    let mut place = Place::new();
    let authority = place.directory().join("authority.pem");
    let daemon = place.daemon();
    let shown = daemon.get("/authority").await.unwrap();
    let certificate = shown["certificate"].as_str().unwrap().to_owned();
    std::fs::write(&authority, &certificate).unwrap();
    let id =
        daemon.create(json!({ "name": "web", "image": "base", "port_host": "app.internal:{port}" })).await.unwrap();
    let server = "
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = [self.headers[name] for name in ('Host', 'X-Forwarded-Host', 'X-Forwarded-Proto')]
        self.send_response(200); self.end_headers(); self.wfile.write(' '.join(told).encode())
    def log_message(self, *rest): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Answer).serve_forever()
";
    daemon.write(&id, "/server.py", server.into()).await.unwrap();
    daemon.post(&format!("/sandboxes/{id}/processes"), json!({ "argv": ["python3", "/server.py"] })).await.unwrap();
    dorm_testing::until(PATIENCE, "the server answers", || async { Ok(daemon.visit(&id, 8000, "/").await.is_ok()) })
        .await
        .unwrap();
    let host = format!("8000-{id}.localhost");
    let told = format!("app.internal:8000 {host} https");
    assert_eq!(get(daemon, &authority, &host, "/"), Ok(told.clone()));
    assert_eq!(get(daemon, &authority, "localhost", "/v1/health"), Ok("{\"status\":\"ok\"}".to_owned()));
    let refused = get(daemon, &authority, "evil.test", "/").unwrap_err();
    assert!(refused.contains("SSLError") || refused.contains("ssl."), "{refused}");
    let port = daemon.address().rsplit(':').next().unwrap().to_owned();
    let dorm = |server: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
        command.args(["sbx", "exec", "web", "--server", server, "--data"]).arg(daemon.data()).args(more);
        command.args(["--", "echo", "inside"]).output().unwrap()
    };
    let server = format!("https://localhost:{port}");
    let said = dorm(&server, &["--ca", authority.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "inside\n", "{}", String::from_utf8_lossy(&said.stderr));
    let distrusted = dorm(&server, &[]);
    let told_why = String::from_utf8_lossy(&distrusted.stderr).into_owned();
    assert!(told_why.contains(&format!("no daemon answers at {server}")), "{told_why}");
    daemon.act(&id, "suspend").await.unwrap();
    let daemon = place.daemon_mut();
    daemon.kill().unwrap();
    daemon.start_again().unwrap();
    let daemon = place.daemon();
    assert_eq!(daemon.get("/authority").await.unwrap()["certificate"], json!(certificate));
    assert_eq!(get(daemon, &authority, &host, "/"), Ok(told), "the request wakes the sandbox");
    place.end(&[]).await;
}
