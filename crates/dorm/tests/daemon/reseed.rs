//! Forks of a Python process that has used its random number generators: each continues with random
//! numbers of its own.

use std::collections::BTreeSet;

use dorm_testing::{Daemon, until};
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place};

const DRAWS: &str = include_str!("reseed/draws.py");
const RESEED: &str = include_str!("../../../../docs/examples/dormouse_reseed.py");
const CERTIFICATE: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
    -keyout /root/key.pem -out /root/cert.pem -subj /CN=draws -addext subjectAltName=DNS:draws";
const FORKS: usize = 64;
/// The port of the process that listens for a new identity, and that of the one that does not.
const LISTENS: u16 = 8000;
const DEAF: u16 = 8001;

async fn visit(daemon: &Daemon, id: &str, port: u16, path: &str) -> Value {
    serde_json::from_str(&daemon.visit(id, port, path).await.unwrap()).unwrap()
}

/// The distinct values of one kind that were drawn, and the number of draws.
fn drawn(answers: &[Value], kind: &str) -> (BTreeSet<String>, usize) {
    let values = answers.iter().flat_map(|answer| match &answer["drawn"][kind] {
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    });
    let values: Vec<_> = values.map(|value| value.as_str().unwrap().to_owned()).collect();
    (values.iter().cloned().collect(), values.len())
}

async fn begin(daemon: &Daemon) -> String {
    let resources = json!({ "memory_bytes": 128 << 20 });
    let id = daemon.create(json!({ "name": "draws", "image": "base", "resources": resources })).await.unwrap();
    for (name, text) in [("draws.py", DRAWS), ("dormouse_reseed.py", RESEED)] {
        daemon.write(&id, &format!("/root/{name}"), text.as_bytes().to_vec()).await.unwrap();
    }
    let (code, output) = daemon.exec(&id, &["sh", "-c", &format!("{CERTIFICATE} 2>&1")]).await.unwrap();
    assert_eq!(code, 0, "{output}");
    for (port, listens) in [(LISTENS, "listens"), (DEAF, "does not")] {
        let process = json!({ "argv": ["python3", "/root/draws.py", port.to_string(), listens] });
        daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
        let answers = || async { Ok(daemon.visit(&id, port, "/").await.is_ok()) };
        until(PATIENCE, "the program answers", answers).await.unwrap();
    }
    id
}

#[tokio::test]
async fn sixty_four_forks_of_a_python_process_share_no_random_number_and_no_session_key() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = begin(daemon).await;
    visit(daemon, &id, LISTENS, "/watch").await;
    let asked = json!({ "count": FORKS, "on_partial_failure": "roll_back" });
    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), asked).await.unwrap();
    let children = forked["children"].as_array().unwrap().iter().map(|child| child["sandbox"]["id"].as_str().unwrap());
    let (mut listening, mut deaf) = (Vec::new(), Vec::new());
    for child in children {
        listening.push(visit(daemon, child, LISTENS, "/").await);
        deaf.push(visit(daemon, child, DEAF, "/").await);
    }
    assert_eq!(listening.len(), FORKS);
    let pids: BTreeSet<_> = listening.iter().map(|answer| answer["pid"].to_string()).collect();
    assert_eq!(pids.len(), 1, "all continue as the one process");
    for kind in ["uuid", "urandom", "random", "openssl", "openssl_thread", "tls"] {
        let (different, all) = drawn(&listening, kind);
        assert_eq!(different.len(), all, "{kind}: some are the same");
    }
    // Without reseeding they are the same in all forks; otherwise the checks above would prove
    // nothing.
    for kind in ["random", "openssl", "openssl_thread", "tls"] {
        let (different, all) = drawn(&deaf, kind);
        assert_eq!(different.len(), all / FORKS, "{kind}: a process that does not listen draws the same everywhere");
    }
    for kind in ["uuid", "urandom"] {
        let (different, all) = drawn(&deaf, kind);
        assert_eq!(different.len(), all, "{kind}: comes from the kernel, which differs without any help");
    }
    let mut windows: Vec<f64> = listening.iter().map(|answer| answer["window"]["ran_ms"].as_f64().unwrap()).collect();
    windows.sort_by(f64::total_cmp);
    let at = |part: usize| windows[(windows.len() - 1) * part / 100];
    eprintln!(
        "ran before it was reseeded: least {} ms, median {} ms, 90 % {} ms, most {} ms",
        at(0),
        at(50),
        at(90),
        at(100)
    );
    place.end(&[]).await;
}
