//! HTTPS and HTTP on one listener.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use dorm_authority::Authority;
use dorm_http::{ConnectionLimits, Connections, Domains, Life, NetworkDoor, Plain, Scheme, Server, Tls};
use dorm_lifecycle::ProjectId;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

struct Served {
    address: SocketAddr,
    certificate: String,
    life: Life,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.life.stop.cancel();
        self.life.cut.cancel();
    }
}

async fn serve(plain: Plain, limits: ConnectionLimits) -> Served {
    let domains = Arc::new(Domains::with(["sandboxes.example.org".to_owned()]).unwrap());
    let authority = Authority::derive(&[7; 32], &ProjectId::local()).only_for(domains.names().to_vec());
    let tls = Tls::new(authority, domains, None, plain).unwrap();
    let certificate = tls.certificate().unwrap().0;
    let tell = get(|Extension(scheme): Extension<Scheme>| async move { scheme.as_str() });
    let life = Life::until(CancellationToken::new());
    let mut server = Server::new(life.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = NetworkDoor { router: Router::new().route("/", tell), full: b"", tls: Some(tls) };
    server.at_network(listener, Connections::new(limits), door);
    tokio::spawn(server.run(Duration::from_secs(1)));
    Served { address, certificate, life }
}

fn trusting(certificate: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// The whole response to a request.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn one_address_answers_to_http_and_to_https_for_each_of_its_hosts() {
    let served = serve(Plain::Answered, ConnectionLimits::default()).await;
    let plain = ask(TcpStream::connect(served.address).await.unwrap()).await;
    assert!(plain.starts_with("HTTP/1.1 200") && plain.ends_with("\r\n\r\nhttp"), "{plain}");
    let connector = trusting(&served.certificate);
    for host in ["localhost", "8080-abcdefghij2345678901.localhost", "1-a.sandboxes.example.org", "127.0.0.1"] {
        let stream = TcpStream::connect(served.address).await.unwrap();
        let name = ServerName::try_from(host).unwrap();
        let answer = ask(connector.connect(name, stream).await.expect(host)).await;
        assert!(answer.ends_with("\r\n\r\nhttps"), "{host}: {answer}");
    }
    let stream = TcpStream::connect(served.address).await.unwrap();
    connector.connect(ServerName::try_from("evil.test").unwrap(), stream).await.unwrap_err();
    // Another authority is not trusted, and the server survives that.
    let other = Authority::derive(&[8; 32], &ProjectId::local()).certificate().unwrap();
    let stream = TcpStream::connect(served.address).await.unwrap();
    trusting(&other).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap_err();
    let stream = TcpStream::connect(served.address).await.unwrap();
    let again = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    assert!(ask(again).await.ends_with("https"));
}

#[tokio::test]
async fn where_https_is_required_a_request_without_it_is_told_so() {
    let served = serve(Plain::Refused, ConnectionLimits::default()).await;
    let answer = ask(TcpStream::connect(served.address).await.unwrap()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400") && head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    assert!(body.contains("https://"), "{body}");
    let stream = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let answer = ask(trusting(&served.certificate).connect(name, stream).await.unwrap()).await;
    assert!(answer.ends_with("https"), "{answer}");
}

#[tokio::test]
async fn clients_that_begin_a_handshake_and_stop_make_room_for_others() {
    let limits = ConnectionLimits {
        total: 8,
        visitors: 4,
        unknown: 4,
        unknown_at_once: 4,
        unknown_for: Duration::from_secs(600),
        new_for: Duration::ZERO,
    };
    let served = serve(Plain::Answered, limits).await;
    let mut stalled = Vec::new();
    for begin in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03", b"GET / HT", b"\x16\x03\x01"] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        stalled.push(stream);
    }
    let stream = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let answer = ask(trusting(&served.certificate).connect(name, stream).await.unwrap()).await;
    assert!(answer.ends_with("https"), "{answer}");
}
