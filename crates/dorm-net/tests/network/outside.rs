//! An HTTPS server on the internet of a test, which records what arrives.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dorm_ports::Authority;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Host, listen};

/// The authority of the servers outside.
pub(crate) fn authority() -> Authority {
    Authority::derive(&[99; 32], &"outside".parse().unwrap())
}

pub(crate) fn root(authority: &Authority) -> Vec<u8> {
    CertificateDer::from_pem_slice(authority.certificate().unwrap().as_bytes()).unwrap().to_vec()
}

/// The requests that the server has received: the head of each as text.
#[derive(Clone, Default)]
pub(crate) struct Received(Arc<Mutex<Vec<String>>>);

impl Received {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Starts servers for these names at their addresses, on this port of the internet.
pub(crate) fn start(host: &Host, servers: &[(&str, Ipv4Addr)], port: u16) -> Received {
    let received = Received::default();
    let day = Authority::day(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    for (name, address) in servers {
        let made = authority().host(name, day).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(made.key).unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.certificate.into()], key).unwrap();
        let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), listen(&host.internet(), *address, port));
        let received = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, received) = (acceptor.clone(), received.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| answer(request, received.clone()));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
    }
    received
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

async fn answer(mut request: Request<Incoming>, received: Received) -> Result<Answer, Infallible> {
    let mut head = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    received.0.lock().unwrap().push(head.clone());
    let empty = || Empty::new().map_err(|never: Infallible| match never {}).boxed();
    Ok(match request.uri().path() {
        "/echo" => Response::new(request.into_body().boxed()),
        "/hang" => std::future::pending().await,
        "/switch" => {
            let switching = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(switching.await.unwrap());
                let mut bytes = [0; 5];
                stream.read_exact(&mut bytes).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            response.header("connection", "upgrade").header("upgrade", "echo").body(empty()).unwrap()
        }
        _ => {
            let body = Full::new(Bytes::from(head)).map_err(|never| match never {}).boxed();
            let response = Response::builder().header("alt-svc", "h3=\":443\"").header("connection", "x-hop");
            response.header("x-hop", "1").body(body).unwrap()
        }
    })
}

/// Begins TLS as a program in a sandbox does, which trusts this authority.
pub(crate) async fn tls(stream: TcpStream, name: &str, trusted: &Authority) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root(trusted).into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}
