//! Header rules: secrets that are added to requests outside of a sandbox.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dorm_engine::{Lease, Network};
use dorm_lifecycle::{Egress, EgressDefault, EgressRules, HeaderRule, ProjectId, SecretName};
use dorm_net::{Config, HostNetwork, NameServers};
use dorm_ports::{Authority, LateVault, SecretValue, Vault, VaultError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::name_server::start;
use crate::outside::{self, Received, tls};
use crate::support::{
    DEADLINE, Host, PRIVATE, PUBLIC, PUBLIC_TOO, connect, datagrams, lease, on_a_host, reaches, rules,
};

const HTTPS: u16 = 443;

/// The secrets of all projects.
#[derive(Clone, Default)]
struct Secrets(Arc<Mutex<BTreeMap<(ProjectId, SecretName), String>>>);

impl Secrets {
    fn set(&self, project: &str, name: &str, value: &str) {
        self.0.lock().unwrap().insert((project.parse().unwrap(), name.parse().unwrap()), value.to_owned());
    }

    fn remove(&self, project: &str, name: &str) {
        self.0.lock().unwrap().remove(&(project.parse().unwrap(), name.parse().unwrap()));
    }
}

impl Vault for Secrets {
    fn secret(&self, project: &ProjectId, name: &SecretName) -> Result<SecretValue, VaultError> {
        let found = self.0.lock().unwrap().get(&(project.clone(), name.clone())).cloned();
        let missing = || VaultError::Missing { project: project.clone(), name: name.clone() };
        found.map(SecretValue::new).ok_or_else(missing)
    }

    fn authority(&self, project: &ProjectId) -> Result<Authority, VaultError> {
        Ok(authority(project.as_str()))
    }
}

fn authority(project: &str) -> Authority {
    Authority::derive(&[1; 32], &project.parse().unwrap())
}

/// A host with servers for `one.test`, `a.b.wild.test`, and names that lead to private addresses.
struct World {
    network: HostNetwork,
    secrets: Secrets,
    received: Received,
    config: Config,
}

async fn world(host: &Host, change: impl FnOnce(&mut Config)) -> World {
    let servers = [("one.test", PUBLIC), ("a.b.wild.test", PUBLIC_TOO), ("rebind.test", PRIVATE[0])];
    let received = outside::start(host, &servers, HTTPS);
    let mut config = host.config("a");
    config.dns = NameServers::Fixed(vec![start().await.0]);
    config.also_trusted = vec![outside::root(&outside::authority())];
    change(&mut config);
    let secrets = Secrets::default();
    secrets.set("one", "TOKEN", "s3cret");
    config.vault.open(Arc::new(secrets.clone()));
    World { network: HostNetwork::open(config.clone()).await.unwrap(), secrets, received, config }
}

fn header(host: &str, value: &str) -> HeaderRule {
    let (name, project) = ("Authorization".to_owned(), "one".parse().unwrap());
    HeaderRule { host: host.to_owned(), port: HTTPS, name, value: value.to_owned(), project }
}

fn public(headers: Vec<HeaderRule>) -> Egress {
    Egress::Rules(EgressRules { rules: Vec::new(), default: EgressDefault::Public, headers })
}

fn bearer() -> Egress {
    public(vec![header("one.test", "Bearer {TOKEN}")])
}

async fn open(lease: &Lease, address: Ipv4Addr, name: &str) -> TlsStream<TcpStream> {
    let stream = connect(&lease.namespace, address, HTTPS).await.unwrap();
    tls(stream, name, &authority("one")).await.unwrap()
}

/// Sends a request on a connection and returns the status and the rest of the response.
async fn ask(stream: &mut TlsStream<TcpStream>, head: &str) -> (u16, String) {
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    read(stream).await
}

/// Reads one response that has a length.
async fn read(stream: &mut TlsStream<TcpStream>) -> (u16, String) {
    let mut text = String::new();
    let reading = async {
        loop {
            let byte = stream.read_u8().await?;
            text.push(char::from(byte));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Ok::<_, std::io::Error>(());
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("the request was answered").expect("it was answered in full");
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text)
}

async fn get(lease: &Lease, address: Ipv4Addr, name: &str) -> (u16, String) {
    ask(&mut open(lease, address, name).await, &format!("GET /x HTTP/1.1\r\nHost: {name}")).await
}

#[test]
fn a_header_is_set_for_the_hosts_of_its_rule_and_no_others() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        let mut stream = open(&lease, PUBLIC, "one.test").await;
        let request = "GET https://one.test/x?y=z HTTP/1.1\r\nHost: one.test\r\nauthorization: mine\r\nauthorization: too\r\n\
                       X-Other: stays\r\nConnection: authorization, keep-alive";
        let (status, said) = ask(&mut stream, request).await;
        assert_eq!(status, 200, "{said}");
        assert!(!said.contains("alt-svc") && !said.contains("x-hop: 1"), "{said}");
        let [seen] = &world.received.take()[..] else { panic!("one request") };
        assert!(seen.starts_with("GET /x?y=z\n"), "{seen}");
        assert!(seen.contains("authorization: Bearer s3cret\n") && seen.contains("x-other: stays\n"), "{seen}");
        assert!(
            !seen.contains("mine") && !seen.contains("too") && seen.matches("authorization").count() == 1,
            "{seen}"
        );

        // Other hosts are passed on: their own certificate arrives, and no secret leaves.
        let stream = connect(&lease.namespace, PUBLIC_TOO, HTTPS).await.unwrap();
        let mut stream = tls(stream, "a.b.wild.test", &outside::authority()).await.unwrap();
        assert_eq!(ask(&mut stream, "GET / HTTP/1.1\r\nHost: a.b.wild.test").await.0, 200);
        assert!(!world.received.take()[0].contains("s3cret"));
        // Without TLS at another port, everything is as before.
        let asked = datagrams(&lease.namespace, PUBLIC, HTTPS);
        assert!(crate::support::ask(&asked, b"quic").await.is_err(), "QUIC would lead past the rule");
    });
}

#[test]
fn the_address_that_the_sandbox_connects_to_is_not_trusted() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        for address in [PUBLIC, PUBLIC_TOO, PRIVATE[0], [8, 8, 8, 8].into(), [10, 0, 0, 1].into()] {
            assert_eq!(get(&lease, address, "one.test").await.0, 200, "{address}");
            assert!(world.received.take()[0].contains("host: one.test\n"));
        }
        // A name that leads to private addresses gets nothing, unless a rule names the network.
        let rebind = vec![header("rebind.test", "{TOKEN}")];
        world.network.allow(lease.id, &public(rebind.clone())).await.unwrap();
        let (status, said) = get(&lease, PRIVATE[0], "rebind.test").await;
        assert!(status == 502 && said.contains("allow no address of rebind.test"), "{said}");
        assert_eq!(world.received.take(), [] as [&str; 0]);
        let Egress::Rules(open) = rules(&["allow 192.168.77.0/24"], EgressDefault::Public) else { panic!() };
        let open = Egress::Rules(EgressRules { headers: rebind, ..open });
        world.network.allow(lease.id, &open).await.unwrap();
        assert_eq!(get(&lease, PRIVATE[0], "rebind.test").await.0, 200);
        // So does one whose addresses are denied.
        let Egress::Rules(denied) = rules(&["deny 198.51.100.10"], EgressDefault::Public) else { panic!() };
        let denied = Egress::Rules(EgressRules { headers: vec![header("one.test", "{TOKEN}")], ..denied });
        world.network.allow(lease.id, &denied).await.unwrap();
        assert_eq!(get(&lease, PUBLIC, "one.test").await.0, 502);
        // And what is passed on obeys the rules, too.
        let stream = connect(&lease.namespace, PRIVATE[0], HTTPS).await.unwrap();
        assert!(tls(stream, "rebind.test", &outside::authority()).await.is_err());
        let stream = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        assert!(tls(stream, "x.test", &outside::authority()).await.is_err());
    });
}

#[test]
fn a_secret_is_read_for_each_request() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        let mut stream = open(&lease, PUBLIC, "one.test").await;
        let request = "GET / HTTP/1.1\r\nHost: one.test";
        assert_eq!(ask(&mut stream, request).await.0, 200);
        world.secrets.set("one", "TOKEN", "changed");
        assert_eq!(ask(&mut stream, request).await.0, 200);
        let seen = world.received.take();
        assert!(seen[0].contains("Bearer s3cret") && seen[1].contains("Bearer changed"), "{seen:?}");
        world.secrets.remove("one", "TOKEN");
        let (status, said) = ask(&mut stream, request).await;
        assert_eq!(status, 502);
        assert!(said.contains("'one.test: authorization' needs the secret 'TOKEN'"), "{said}");
        assert_eq!(world.received.take(), [] as [&str; 0]);
        world.secrets.set("one", "TOKEN", "back");
        assert_eq!(get(&lease, PUBLIC, "one.test").await.0, 200);
    });
}

#[test]
fn what_the_rule_cannot_judge_is_refused() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a.b.wild.test", 421),
            ("GET https://a.b.wild.test/ HTTP/1.1\r\nHost: one.test", 421),
            ("GET / HTTP/1.1\r\nHost: one.test:80", 421),
            ("TRACE / HTTP/1.1\r\nHost: one.test", 405),
            ("CONNECT one.test:443 HTTP/1.1\r\nHost: one.test", 405),
            ("GET / HTTP/1.1", 400),
            ("GET / HTTP/1.1\r\nHost: one.test\r\nHost: a.b.wild.test", 400),
            ("GET / HTTP/1.0", 400),
            ("nonsense", 400),
        ] {
            assert_eq!(ask(&mut open(&lease, PUBLIC, "one.test").await, request).await.0, status, "{request}");
        }
        let large = format!("GET / HTTP/1.1\r\nHost: one.test{}", "\r\nX: y".repeat(200));
        assert_eq!(ask(&mut open(&lease, PUBLIC, "one.test").await, &large).await.0, 431);
        // No name, no TLS at all, a name of another project's authority.
        let stream = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        assert!(tls(stream, "198.51.100.10", &outside::authority()).await.is_err());
        for (sent, answered) in [("GET / HTTP/1.1\r\nHost: one.test\r\n\r\n", "HTTP/1.1 400 "), ("SSH-2.0-x\r\n", "")] {
            let mut stream = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut said = String::new();
            let _ = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut said)).await.expect("it ended");
            assert!(said.starts_with(answered) && said.is_empty() == answered.is_empty(), "{said}");
        }
        let stream = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        assert!(tls(stream, "one.test", &authority("two")).await.is_err(), "another project's authority is no use");
        assert_eq!(world.received.take(), [] as [&str; 0]);
        assert!(!reaches(&lease.namespace, lease.gateway, 8443).await, "the proxy is reached by its ports only");
    });
}

#[test]
fn a_project_has_only_its_own_secrets() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let foreign = HeaderRule { project: "two".parse().unwrap(), ..header("one.test", "{TOKEN}") };
        let lease = lease(&world.network, public(vec![foreign])).await;
        let stream = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        let mut stream = tls(stream, "one.test", &authority("two")).await.unwrap();
        let (status, said) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: one.test").await;
        assert!(status == 502 && said.contains("the project 'two' has no secret 'TOKEN'"), "{said}");
        assert_eq!(world.received.take(), [] as [&str; 0]);
    });
}

#[test]
fn bodies_are_passed_on_as_they_come_in_both_directions() {
    const SIZE: usize = 64 << 20;
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        for framed in [format!("Content-Length: {SIZE}"), "Transfer-Encoding: chunked".to_owned()] {
            let (mut reading, mut writing) = tokio::io::split(open(&lease, PUBLIC, "one.test").await);
            let is_chunked = framed.starts_with('T');
            let head = format!(
                "POST /echo HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\nExpect: 100-continue\r\n{framed}\r\n\r\n"
            );
            let sending = async move {
                writing.write_all(head.as_bytes()).await.unwrap();
                let part = vec![b'x'; 1 << 20];
                for _ in 0..SIZE / part.len() {
                    if is_chunked {
                        writing.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await.unwrap();
                    }
                    writing.write_all(&part).await.unwrap();
                    if is_chunked {
                        writing.write_all(b"\r\n").await.unwrap();
                    }
                }
                if is_chunked {
                    writing.write_all(b"0\r\n\r\n").await.unwrap();
                }
                // The TLS session keeps the bytes that did not fit into the socket.
                writing.flush().await.unwrap();
                writing
            };
            let receiving = async {
                let (mut count, mut buffer) = (0, vec![0; 1 << 20]);
                loop {
                    match reading.read(&mut buffer).await {
                        Ok(0) | Err(_) => return count,
                        Ok(read) => count += buffer[..read].iter().filter(|byte| **byte == b'x').count(),
                    }
                }
            };
            let (_writing, count) = tokio::join!(sending, receiving);
            assert!((SIZE..SIZE + 64).contains(&count), "{framed}: {count}");
        }
    });
}

#[test]
fn a_protocol_can_be_switched_to() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        let mut stream = open(&lease, PUBLIC, "one.test").await;
        let request = "GET /switch HTTP/1.1\r\nHost: one.test\r\nConnection: Upgrade\r\nUpgrade: echo";
        assert_eq!(ask(&mut stream, request).await.0, 101);
        assert!(world.received.take()[0].contains("authorization: Bearer s3cret\n"));
        stream.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
        assert_eq!(&heard, b"hello");
    });
}

#[test]
fn a_host_that_does_not_answer_delays_only_its_own_request() {
    on_a_host(async |host| {
        let world = world(&host, |config| config.proxy.answer = Duration::from_millis(300)).await;
        let lease = lease(&world.network, bearer()).await;
        let mut stream = open(&lease, PUBLIC, "one.test").await;
        stream.write_all(b"GET /hang HTTP/1.1\r\nHost: one.test\r\n\r\n").await.unwrap();
        assert_eq!(get(&lease, PUBLIC, "one.test").await.0, 200);
        let (status, said) = read(&mut stream).await;
        assert!(status == 504 && said.contains("one.test did not answer"), "{said}");
    });
}

#[test]
fn one_sandbox_cannot_take_the_connections_of_another() {
    on_a_host(async |host| {
        let world = world(&host, |config| config.proxy.hello = DEADLINE).await;
        let greedy = lease(&world.network, bearer()).await;
        let other = lease(&world.network, bearer()).await;
        let mut taken = Vec::new();
        for _ in 0..128 {
            taken.push(connect(&greedy.namespace, PUBLIC, HTTPS).await.unwrap());
        }
        let mut more = connect(&greedy.namespace, PUBLIC, HTTPS).await.unwrap();
        let ended = tokio::time::timeout(DEADLINE, more.read(&mut [0])).await.expect("it is closed");
        assert!(matches!(ended, Ok(0) | Err(_)));
        assert_eq!(get(&other, PUBLIC, "one.test").await.0, 200);
        drop(taken);
    });
}

#[test]
fn a_change_of_the_rules_holds_for_open_connections() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, Egress::Public).await;
        let direct = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        let mut direct = tls(direct, "one.test", &outside::authority()).await.unwrap();
        assert_eq!(ask(&mut direct, "GET / HTTP/1.1\r\nHost: one.test").await.0, 200);
        world.network.allow(lease.id, &bearer()).await.unwrap();
        let _ = direct.write_all(b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n").await;
        assert!(matches!(direct.read(&mut [0]).await, Ok(0) | Err(_)), "it would go past the rule");
        world.received.take();

        let mut ruled = open(&lease, PUBLIC, "one.test").await;
        assert_eq!(ask(&mut ruled, "GET / HTTP/1.1\r\nHost: one.test").await.0, 200);
        world.network.allow(lease.id, &bearer()).await.unwrap();
        assert_eq!(ask(&mut ruled, "GET / HTTP/1.1\r\nHost: one.test").await.0, 200, "the same rules end nothing");
        world.network.allow(lease.id, &Egress::closed()).await.unwrap();
        assert!(matches!(ruled.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(!reaches(&lease.namespace, PUBLIC, HTTPS).await);
        world.received.take();
        world.network.allow(lease.id, &Egress::Public).await.unwrap();
        let direct = connect(&lease.namespace, PUBLIC, HTTPS).await.unwrap();
        let mut direct = tls(direct, "one.test", &outside::authority()).await.unwrap();
        assert_eq!(ask(&mut direct, "GET / HTTP/1.1\r\nHost: one.test").await.0, 200);
        assert!(!world.received.take()[0].contains("s3cret"));
    });
}

#[test]
fn the_rules_are_in_effect_again_after_a_restart() {
    on_a_host(async |host| {
        let world = world(&host, |_| {}).await;
        let lease = lease(&world.network, bearer()).await;
        assert_eq!(get(&lease, PUBLIC, "one.test").await.0, 200);
        world.network.close().await;
        drop(world.network);
        // The records are read after the network is there: requests wait.
        let mut config = world.config.clone();
        config.vault = LateVault::default();
        let network = HostNetwork::open(config.clone()).await.unwrap();
        let asking = get(&lease, PUBLIC, "one.test");
        let opening = async { config.vault.open(Arc::new(world.secrets.clone())) };
        let ((status, _), ()) = tokio::join!(asking, opening);
        assert_eq!(status, 200);
        assert!(world.received.take().iter().all(|seen| seen.contains("Bearer s3cret")));
        network.release(lease.id).await.unwrap();
        assert_eq!(host.traces().iter().filter(|line| line.contains("dorm-a-")).count(), 0);
    });
}
