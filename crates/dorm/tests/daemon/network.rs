//! What a sandbox reaches: never the host, never another sandbox.

use serde_json::json;
use tokio::net::TcpListener;

use crate::place::{Counter, Place};

const TRY: &str = "import socket,sys\n\
    try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); print('reached')\n\
    except OSError as error: print('refused', error)\n";

#[tokio::test]
async fn neither_the_host_nor_another_sandbox_is_reached() {
    let place = Place::new();
    let daemon = place.daemon();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    let other = Counter::create(daemon, json!({ "name": "other", "image": "base" })).await;
    let addresses = std::process::Command::new("hostname").arg("-I").output().unwrap();
    let text = String::from_utf8(addresses.stdout).unwrap();
    let own = text.split_whitespace().filter(|address| address.contains('.')).map(str::to_owned);
    for address in own.chain(["10.0.0.1".to_owned(), "169.254.169.254".to_owned()]) {
        for port in [port.as_str(), "8000"] {
            let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, &address, port]).await.unwrap();
            assert!(said.starts_with("refused"), "{address}:{port} {said}");
        }
    }
    let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, "10.0.0.2", "8000"]).await.unwrap();
    assert!(said.starts_with("refused"), "10.0.0.2 is itself, not {}: {said}", other.id);
    place.end(&[]).await;
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_told_from_a_sandbox_that_is_not_there() {
    let place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "image": "base" })).await.unwrap();
    let closed = daemon.visit(&id, 9, "/").await.unwrap_err().to_string();
    assert!(closed.contains("502") && closed.contains("port"), "{closed}");
    let nobody = daemon.visit("aaaaaaaaaaaaaaaaaaaa", 9, "/").await.unwrap_err().to_string();
    assert!(nobody.contains("404"), "{nobody}");
    place.end(&[]).await;
}
