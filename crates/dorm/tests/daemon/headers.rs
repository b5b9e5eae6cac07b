//! Header rules: a secret reaches a server outside, and nothing of it is in the sandbox.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use dorm_ports::Authority;
use dorm_testing::{Daemon, Internet, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use crate::place::{PATIENCE, Place};

const SECRET: &str = "tok-Zq7vX93kLw-outside-only";
const HOST: &str = "api.outside.test";

/// An HTTPS server that prints the value of a header of each request, and answers with the length
/// of the body and a name.
const SERVER: &str = "import http.server,ssl,sys\n\
    class Handler(http.server.BaseHTTPRequestHandler):\n\
    \x20   protocol_version = 'HTTP/1.1'\n\
    \x20   def do_POST(self):\n\
    \x20       body = self.rfile.read(int(self.headers.get('Content-Length') or 0))\n\
    \x20       print('saw', self.path, self.headers.get('Authorization'), flush=True)\n\
    \x20       said = ('%d bytes' % len(body)).encode()\n\
    \x20       self.send_response(200); self.send_header('Content-Length', str(len(said))); self.end_headers()\n\
    \x20       self.wfile.write(said)\n\
    \x20   do_GET = do_POST\n\
    \x20   def log_message(self, *_): pass\n\
    server = http.server.ThreadingHTTPServer(('0.0.0.0', 443), Handler)\n\
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1])\n\
    server.socket = context.wrap_socket(server.socket, server_side=True)\n\
    print('ready', flush=True); server.serve_forever()\n";

/// A program in a sandbox, which knows nothing of rules. It prints the status and the
/// body, or the error.
const ASK: &str = "import sys,urllib.request,urllib.error\n\
    try: answer = urllib.request.urlopen(sys.argv[1], data=b'x' * int(sys.argv[2]), timeout=60)\n\
    except urllib.error.HTTPError as error: answer = error\n\
    except OSError as error: print('failed', error); sys.exit()\n\
    print(answer.status, answer.read().decode())\n";

/// Looks for a text, which is given in reverse, in the files of a sandbox and in the variables and
/// arguments of its processes.
const SEARCH: &str = "import os,sys\n\
    wanted = sys.argv[1][::-1].encode(); found = set()\n\
    def look(path):\n\
    \x20   try:\n\
    \x20       with open(path, 'rb') as file:\n\
    \x20           if wanted in file.read(): found.add(path)\n\
    \x20   except OSError: pass\n\
    for directory, below, files in os.walk('/'):\n\
    \x20   if directory == '/': below[:] = [name for name in below if name not in ('proc', 'sys', 'dev')]\n\
    \x20   for name in files:\n\
    \x20       path = os.path.join(directory, name)\n\
    \x20       if os.path.isfile(path) and not os.path.islink(path): look(path)\n\
    for pid in os.listdir('/proc'):\n\
    \x20   if pid.isdigit() and int(pid) != os.getpid(): look(f'/proc/{pid}/environ'); look(f'/proc/{pid}/cmdline')\n\
    print(len(found))\n";

/// The world outside of one test: a server, a name server, and their authority.
struct Outside {
    _internet: Internet,
    server: Child,
    saw: Arc<Mutex<Vec<String>>>,
    names: SocketAddr,
    directory: tempfile::TempDir,
}

impl Outside {
    async fn new() -> Self {
        let internet = Internet::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::derive(&[99; 32], &"outside".parse().unwrap());
        std::fs::write(directory.path().join("ca.pem"), authority.certificate().unwrap()).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let made = authority.host(HOST, Authority::day(now)).unwrap();
        let pem = pem("PRIVATE KEY", &made.key) + &pem("CERTIFICATE", &made.certificate);
        let identity = directory.path().join("server.pem");
        std::fs::write(&identity, pem).unwrap();
        let program = ["python3", "-c", SERVER, identity.to_str().unwrap()];
        let (server, lines) = internet.serve(&program).unwrap();
        let saw: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&saw);
        std::thread::spawn(move || lines.for_each(|line| record.lock().unwrap().push(line)));
        let names = name_server(internet.address.clone()).await;
        Self { _internet: internet, server, saw, names, directory }
    }

    fn options(&self) -> Vec<String> {
        let authority = self.directory.path().join("ca.pem").display().to_string();
        let words = ["--name-server", &self.names.to_string(), "--upstream-ca", &authority, "--warm-containers", "0"];
        words.map(str::to_owned).to_vec()
    }

    /// Waits for a request with this path, and returns the header that it had.
    async fn header(&self, path: &str) -> String {
        let found = || {
            self.saw
                .lock()
                .unwrap()
                .iter()
                .find_map(|line| line.strip_prefix(&format!("saw {path} ")).map(str::to_owned))
        };
        until(PATIENCE, "the server has seen the request", || async { Ok(found().is_some()) }).await.unwrap();
        found().unwrap()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A name server that knows the host, and one name that leads to a private address.
async fn name_server(address: String) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let own = socket.local_addr().unwrap();
    let public: std::net::Ipv4Addr = address.parse().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut answer = buffer[..length].to_vec();
            let end = answer[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
            let name = answer[12..end].to_ascii_lowercase();
            let address = match name {
                _ if name.starts_with(b"\x03api\x07outside") => Some(public),
                _ if name.starts_with(b"\x06rebind\x07outside") => Some([10, 0, 0, 1].into()),
                _ => None,
            };
            let is_for_address = answer[end - 4..end] == [0, 1, 0, 1];
            answer.truncate(end);
            answer[2] = 0x85;
            answer[3] = if address.is_some() { 0x80 } else { 0x83 };
            answer[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
            if let Some(address) = address.filter(|_| is_for_address) {
                answer[7] = 1;
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend_from_slice(&address.octets());
            }
            let _ = socket.send_to(&answer, from).await;
        }
    });
    own
}

fn egress(host: &str) -> Value {
    let header = json!({ "host": host, "name": "Authorization", "value": "Bearer {TOKEN}" });
    json!({ "ordered": { "rules": [], "default": "public", "headers": [header] } })
}

async fn set_secret(daemon: &Daemon, value: &str) {
    daemon.ask(Method::PUT, "/secrets/TOKEN", Some(json!({ "value": value }))).await.unwrap();
}

async fn ask(daemon: &Daemon, id: &str, path: &str) -> String {
    ask_host(daemon, id, HOST, path, 3).await
}

async fn ask_host(daemon: &Daemon, id: &str, host: &str, path: &str, bytes: usize) -> String {
    let url = format!("https://{host}{path}");
    let (_, said) = daemon.exec(id, &["python3", "-c", ASK, &url, &bytes.to_string()]).await.unwrap();
    said.trim().to_owned()
}

/// The files below a directory that contain a text, and how many files were read.
fn mentions(directory: &Path, wanted: &str, read: &mut usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(mentions(&path, wanted, read));
        } else if kind.is_file()
            && let Ok(file) = std::fs::File::open(&path)
        {
            *read += 1;
            if contains(file, wanted.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

/// Whether a file contains a text. Disks are files with holes, which are passed over.
fn contains(file: std::fs::File, wanted: &[u8]) -> bool {
    use rustix::fs::SeekFrom::{Data, Hole};
    let (mut buffer, mut at) = (vec![0; 4 << 20], 0);
    while let Ok(data) = rustix::fs::seek(&file, Data(at)) {
        let end = rustix::fs::seek(&file, Hole(data)).unwrap();
        at = data;
        while at < end {
            let count = rustix::io::pread(&file, &mut buffer, at).unwrap();
            if count == 0 || memmem(&buffer[..count], wanted) {
                return count > 0;
            }
            // The text may begin at the end of one part and end in the next.
            let left = end - at;
            let step = (count as u64).saturating_sub(wanted.len() as u64 - 1).max(1);
            at += if count as u64 >= left { left } else { step };
        }
    }
    false
}

fn memmem(content: &[u8], wanted: &[u8]) -> bool {
    let starts = content.iter().enumerate().filter(|(_, byte)| **byte == wanted[0]);
    starts.map(|(at, _)| &content[at..]).any(|rest| rest.starts_with(wanted))
}

async fn found_inside(daemon: &Daemon, id: &str, wanted: &str) -> usize {
    let reversed: String = wanted.chars().rev().collect();
    let (code, said) = daemon.exec(id, &["python3", "-c", SEARCH, &reversed]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    said.trim().parse().unwrap()
}

#[tokio::test]
async fn a_server_sees_the_secret_and_the_sandbox_never_has_it() {
    let outside = Outside::new().await;
    let options = outside.options();
    let place = Place::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let daemon = place.daemon();
    set_secret(daemon, SECRET).await;
    let control = format!("control-{}", std::process::id());
    let asked = json!({ "name": "web", "image": "base", "egress": egress(HOST), "env": { "CONTROL": control } });
    let id = daemon.create(asked).await.unwrap();
    assert_eq!(ask(daemon, &id, "/first").await, "200 3 bytes");
    assert_eq!(outside.header("/first").await, format!("Bearer {SECRET}"));
    let kept = "echo \"$CONTROL\" > /root/control; nohup sleep 100000 > /dev/null 2>&1 &";
    assert_eq!(daemon.exec(&id, &["/bin/sh", "-c", kept]).await.unwrap().0, 0);
    assert_eq!(ask_host(daemon, &id, HOST, "/big", 8 << 20).await, format!("200 {} bytes", 8 << 20));

    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    let data = daemon.data().to_owned();
    let mut read = 0;
    let saved = mentions(&data, &control, &mut read);
    assert!(saved.iter().any(|path| path.display().to_string().contains("saved")), "the memory image: {saved:?}");
    assert_eq!(mentions(&data, SECRET, &mut read), Vec::<PathBuf>::new(), "of {read} files");
    assert!(!daemon.log().contains(SECRET));

    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(ask(daemon, &id, "/resumed").await, "200 3 bytes");
    assert_eq!(outside.header("/resumed").await, format!("Bearer {SECRET}"));
    assert!(found_inside(daemon, &id, &control).await >= 2, "in a file, and in the variables of a process");
    assert_eq!(found_inside(daemon, &id, SECRET).await, 0);
    for path in ["", "/why", "/usage"] {
        assert!(!daemon.get(&format!("/sandboxes/{id}{path}")).await.unwrap().to_string().contains(SECRET));
    }
    for path in ["/secrets", "/secrets/TOKEN", "/events", "/operations", "/projects"] {
        assert!(!daemon.get(path).await.unwrap().to_string().contains(SECRET), "{path}");
    }
    assert_eq!(daemon.get("/secrets/TOKEN").await.unwrap()["used_by"], 1);
    drop(outside);
    place.end(&[]).await;
}

#[tokio::test]
async fn a_rule_holds_in_every_run_and_child_and_after_the_death_of_the_daemon() {
    let outside = Outside::new().await;
    let options = outside.options();
    let mut place = Place::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let daemon = place.daemon();
    set_secret(daemon, SECRET).await;
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    assert!(ask(daemon, &id, "/before").await.starts_with("failed"), "the sandbox does not trust the server itself");
    let change = format!("/sandboxes/{id}/egress");
    let changed = daemon.post(&change, json!({ "egress": egress(HOST) })).await.unwrap();
    assert_eq!(changed["egress"]["ordered"]["headers"][0]["value"], "Bearer {TOKEN}");
    assert_eq!(ask(daemon, &id, "/added").await, "200 3 bytes");

    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), json!({ "count": 1 })).await.unwrap();
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(daemon, &child, "/forked").await, "200 3 bytes");
    let files = daemon.checkpoint(&id, "filesystem").await.unwrap()["id"].as_str().unwrap().to_owned();
    let booted = daemon.create(json!({ "snapshot": files })).await.unwrap();
    assert_eq!(ask(daemon, &booted, "/booted").await, "200 3 bytes");
    let plain = daemon.create(json!({ "snapshot": files, "egress": "public" })).await.unwrap();
    assert!(ask(daemon, &plain, "/plain").await.starts_with("failed"), "it has no rule");

    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    for (id, path) in [(&id, "/killed"), (&child, "/killed-child"), (&booted, "/killed-booted")] {
        assert_eq!(ask(daemon, id, path).await, "200 3 bytes");
    }
    for path in ["/added", "/forked", "/booted", "/killed", "/killed-child", "/killed-booted"] {
        assert_eq!(outside.header(path).await, format!("Bearer {SECRET}"), "{path}");
    }

    // A new value is used at once, and a missing one is named.
    set_secret(daemon, "another").await;
    assert_eq!(ask(daemon, &id, "/changed").await, "200 3 bytes");
    assert_eq!(outside.header("/changed").await, "Bearer another");
    daemon.ask(Method::DELETE, "/secrets/TOKEN", None).await.unwrap();
    let refused = ask(daemon, &id, "/removed").await;
    assert!(refused.starts_with("502") && refused.contains("needs the secret 'TOKEN'"), "{refused}");
    set_secret(daemon, SECRET).await;

    // A name that leads to a private address is not connected to.
    daemon.post(&change, json!({ "egress": egress("rebind.outside.test") })).await.unwrap();
    let refused = ask_host(daemon, &id, "rebind.outside.test", "/rebind", 1).await;
    assert!(refused.starts_with("502") && refused.contains("allow no address"), "{refused}");
    daemon.post(&change, json!({ "egress": "closed" })).await.unwrap();
    assert!(ask(daemon, &id, "/closed").await.starts_with("failed"));
    drop(outside);
    place.end(&[]).await;
}

#[tokio::test]
async fn another_project_has_neither_the_secret_nor_the_trust() {
    let outside = Outside::new().await;
    let options = outside.options();
    let place = Place::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let daemon = place.daemon();
    set_secret(daemon, SECRET).await;
    daemon.post("/projects", json!({ "name": "other" })).await.unwrap();
    let in_other = async |method, path: &str, body: Value| {
        let request = daemon.request(method, path).header("x-dormouse-project", "other").json(&body);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let asked = json!({ "name": "web", "image": "base", "egress": egress(HOST) });
    let made = in_other(Method::POST, "/sandboxes", asked.clone()).await;
    let foreign = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let own = daemon.create(asked).await.unwrap();
    assert_eq!(ask(daemon, &own, "/own").await, "200 3 bytes");
    let exec = async |argv: Value| {
        let said = in_other(Method::POST, &format!("/sandboxes/{foreign}/exec"), json!({ "argv": argv })).await;
        said["stdout"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let said = exec(json!(["python3", "-c", ASK, format!("https://{HOST}/foreign"), "1"])).await;
    assert!(said.starts_with("502") && said.contains("the project 'other' has no secret 'TOKEN'"), "{said}");
    let certificate = exec(json!(["cat", "/run/dormouse/ca.pem"])).await;
    let (_, other) = daemon.exec(&own, &["cat", "/run/dormouse/ca.pem"]).await.unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----") && certificate != other);
    assert!(in_other(Method::GET, "/secrets", json!({})).await["secrets"].as_array().unwrap().is_empty());
    in_other(Method::POST, &format!("/sandboxes/{foreign}/terminate"), json!({})).await;
    drop(outside);
    place.end(&[]).await;
}
