//! The other side of the proxy: looks up a host, connects to it from the gateway, and verifies its
//! certificate.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dorm_engine::NetworkError;
use dorm_lifecycle::ParsedHeader;
use dorm_ports::Vault as _;
use http_body_util::combinators::BoxBody;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificates::PROTOCOL;
use super::{Rules, Side};
use crate::config::ProxyLimits;
use crate::failed;
use crate::names::{Question, Transport, ask};
use crate::policy::Policy;

/// How many addresses of a host are tried.
pub(super) const ATTEMPTS: usize = 3;
/// The largest head of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// After how much silence the other end of a connection is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(60);

/// The body of a request on its way to a host.
pub(super) type Outgoing = BoxBody<Bytes, hyper::Error>;

/// Returns how hosts are verified: by the roots of this host, and those in `also`.
#[allow(clippy::disallowed_methods, reason = "once, when the network is opened")]
pub(super) fn client(also: &[Vec<u8>]) -> Result<Arc<ClientConfig>, NetworkError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "cannot read some roots of this host; header rules may not reach every host");
    }
    roots.add_parsable_certificates(found.certs);
    for root in also {
        roots
            .add(CertificateDer::from(root.clone()))
            .map_err(|error| failed("use a certificate authority given for header rules", error))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed("set up TLS for header rules", error))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A host must not recognize two projects by a session that they share.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Lets a connection end if the host at its other end is gone.
pub(super) fn keep_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, SILENCE);
    let _ = sockopt::set_tcp_keepintvl(stream, SILENCE / 6);
}

impl Side {
    /// Returns the addresses of a host that the policy allows, as the host's name servers know
    /// them. `None` if the name does not resolve.
    pub(super) async fn resolve(&self, name: &str, policy: &Policy) -> Option<Vec<Ipv4Addr>> {
        if !policy.judge.resolves(name) {
            return None;
        }
        let question = Question::for_address(name)?;
        let asked = question.rewritten().ok()?;
        let mut answer = ask(&asked, &self.common.servers, Transport::Udp).await?;
        if Question::is_truncated(&answer) {
            answer = ask(&asked, &self.common.servers, Transport::Tcp).await?;
        }
        let found = question.answered(&answer).ok()?.addresses;
        let allowed = found.into_iter().map(|found| found.address);
        Some(allowed.filter(|address| policy.judge.allows_host(name, *address)).collect())
    }
}

/// The host that a connection of a sandbox is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Destination {
    pub(super) name: String,
    pub(super) port: u16,
}

/// The connection to a host for one connection of a sandbox.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) destination: Destination,
    side: Arc<Side>,
    rules: Arc<Rules>,
    connection: tokio::sync::Mutex<Option<SendRequest<Outgoing>>>,
}

impl Upstream {
    pub(super) fn new(destination: Destination, side: Arc<Side>, rules: Arc<Rules>) -> Arc<Self> {
        Arc::new(Self { destination, side, rules, connection: tokio::sync::Mutex::default() })
    }

    pub(super) fn limits(&self) -> ProxyLimits {
        self.side.common.limits
    }

    /// Runs `work` as long as the rules stay.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.rules.spawn(work);
    }

    /// Returns the headers to set, each with its value. The error names the rule and no value.
    pub(super) fn headers(&self) -> Result<Vec<(String, HeaderValue)>, String> {
        let Destination { name, port } = &self.destination;
        let mut seen = BTreeSet::new();
        let about = self.rules.policy.headers.iter().filter(|header| header.is_about(name, *port));
        about.filter(|header| seen.insert(&header.name)).map(|header| self.header(header)).collect()
    }

    fn header(&self, header: &ParsedHeader) -> Result<(String, HeaderValue), String> {
        let ParsedHeader { name, before, secret, after, project, .. } = header;
        let rule = || format!("the header rule '{}: {name}' needs the secret '{secret}'", header.host);
        let value = self.side.common.vault.secret(project, secret).map_err(|error| format!("{}: {error}", rule()))?;
        let text = [before, value.expose(), after].concat();
        // The value was checked when it was set, and the rest with the rule.
        let value = HeaderValue::try_from(text).map_err(|_| format!("{}, which no header can have", rule()))?;
        Ok((name.clone(), value))
    }

    /// Returns the open connection, or a new one.
    pub(super) async fn connection(&self) -> Result<SendRequest<Outgoing>, String> {
        if let Some(mut open) = self.connection.lock().await.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        self.new_connection().await
    }

    /// Keeps a connection for the next request.
    pub(super) async fn keep(&self, connection: SendRequest<Outgoing>) {
        if !connection.is_closed() {
            *self.connection.lock().await = Some(connection);
        }
    }

    pub(super) async fn new_connection(&self) -> Result<SendRequest<Outgoing>, String> {
        let Destination { name, port } = &self.destination;
        let addresses = self.side.resolve(name, &self.rules.policy).await;
        let addresses = addresses.ok_or_else(|| format!("{name} does not resolve"))?;
        if addresses.is_empty() {
            return Err(format!("the egress rules allow no address of {name}"));
        }
        let stream = self.side.connect(&addresses, *port).await;
        let stream = stream.map_err(|error| format!("cannot connect to {name}:{port}: {error}"))?;
        let server = ServerName::try_from(name.clone()).map_err(|error| format!("{name} is no host: {error}"))?;
        let connecting = tokio_rustls::TlsConnector::from(Arc::clone(&self.side.common.client)).connect(server, stream);
        let stream = match timeout(self.limits().connect, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(format!("cannot verify {name}:{port}: {error}")),
            Err(_) => return Err(format!("TLS with {name}:{port} took too long")),
        };
        let mut settings = http1::Builder::new();
        settings.max_buf_size(HEAD_BYTES_MAX);
        let (sender, connection) = settings
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("cannot talk to {name}:{port}: {error}"))?;
        let name = name.clone();
        self.rules.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(name, %error, "a connection to a host ended early");
            }
        });
        Ok(sender)
    }
}
