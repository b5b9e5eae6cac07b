//! Header rules: accepts the HTTPS connections of one sandbox in its gateway, and adds headers with
//! secrets to the requests that rules are about.
//!
//! ```text
//! connection to a port of a rule ── TLS hello ─┬─ a host of a rule: TLS ends here ── request ── header set ── TLS ── host
//!                                              ├─ any other host that may be reached: bytes are passed on
//!                                              └─ no name, no TLS, or a host that is denied: refused
//! ```
//!
//! Every connection of the sandbox to such a port arrives here, whatever its address is: programs
//! cache addresses, and hosts share them. A host of a rule is looked up by the host's name servers,
//! never taken from the sandbox. Connections to hosts leave from the gateway, so that the limits on
//! traffic and the rules of the host apply to them as to any other packet of the sandbox.
//!
//! While this process is not there, connections to these ports are refused, and open ones end.

mod certificates;
mod hello;
mod places;
mod refusal;
mod request;
mod upstream;

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use dorm_engine::{LeaseId, NetworkError};
use dorm_ports::{LateVault, Vault as _};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::certificates::Certificates;
use self::hello::{Hello, Replayed};
use self::places::Places;
pub(crate) use self::places::SharedPlaces;
use self::upstream::{Destination, Upstream};
use crate::config::{NameServers, ProxyLimits};
use crate::lease::Leases;
use crate::policy::Policy;

/// The parts that the proxies of all sandboxes share.
#[derive(Debug)]
pub(crate) struct Common {
    vault: LateVault,
    certificates: Certificates,
    servers: NameServers,
    places: SharedPlaces,
    limits: ProxyLimits,
    client: Arc<rustls::ClientConfig>,
}

impl Common {
    /// Trusts the roots of this host, and those in `also`.
    pub(crate) fn new(
        vault: LateVault,
        servers: NameServers,
        limits: ProxyLimits,
        also: &[Vec<u8>],
    ) -> Result<Self, NetworkError> {
        let client = upstream::client(also)?;
        let (certificates, places) = (Certificates::default(), SharedPlaces::default());
        Ok(Self { vault, certificates, servers, places, limits, client })
    }
}

/// Serves the connections of one sandbox until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    task: JoinHandle<()>,
    rules: Arc<RwLock<Arc<Rules>>>,
}

/// The rules for one sandbox, until its egress changes, with the connections that obey them.
#[derive(Debug)]
pub(crate) struct Rules {
    policy: Policy,
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Rules {
    fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self { policy, ended: CancellationToken::new(), tasks: TaskTracker::new() })
    }

    /// Runs `work` until it is done or the rules change.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Ends every connection.
    async fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The lock on the rules for one sandbox while its egress changes. New connections wait meanwhile.
pub(crate) struct Changing(OwnedRwLockWriteGuard<Arc<Rules>>);

/// The rules before a change. Their connections end when it is dropped.
pub(crate) struct Former(Option<Arc<Rules>>);

impl Changing {
    /// Puts the new policy into effect. The same policy again changes nothing.
    pub(crate) fn done(mut self, policy: Policy) -> Former {
        if self.0.policy == policy {
            return Former(None);
        }
        Former(Some(std::mem::replace(&mut *self.0, Rules::new(policy))))
    }
}

impl Former {
    /// Ends their connections.
    pub(crate) async fn end(mut self) {
        if let Some(rules) = self.0.take() {
            rules.end().await;
        }
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        if let Some(rules) = &self.0 {
            rules.ended.cancel();
        }
    }
}

impl Proxy {
    /// Starts the proxy on the current runtime.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        policy: Policy,
        (leases, lease): (Arc<Leases>, LeaseId),
        common: Arc<Common>,
    ) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        let rules = Arc::new(RwLock::new(Rules::new(policy)));
        let places = Places::new(&common.places);
        let side = Arc::new(Side { leases, lease, common });
        Ok(Self { task: tokio::spawn(serve(listener, side, Arc::clone(&rules), places)), rules })
    }

    /// Waits until no connection is being accepted by the present rules.
    pub(crate) fn change(&self) -> impl Future<Output = Changing> + use<> {
        let rules = Arc::clone(&self.rules);
        async move { Changing(rules.write_owned().await) }
    }

    /// Stops the proxy; its sockets are closed when this returns.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
        let rules = Arc::clone(&*self.rules.read().await);
        rules.end().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        if let Ok(rules) = self.rules.try_read() {
            rules.ended.cancel();
        }
    }
}

/// One sandbox's side of the proxy.
#[derive(Debug)]
struct Side {
    leases: Arc<Leases>,
    lease: LeaseId,
    common: Arc<Common>,
}

async fn serve(listener: TcpListener, side: Arc<Side>, rules: Arc<RwLock<Arc<Rules>>>, places: Places) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let rules = Arc::clone(&*rules.read().await);
                // Without a place, the connection is closed, which programs treat as a failure.
                let Some(place) = places.take() else { continue };
                let side = Arc::clone(&side);
                let of = Arc::clone(&rules);
                rules.spawn(async move {
                    side.handle(client, of).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection of a sandbox");
                // An error such as "too many open files" would otherwise repeat in a busy loop.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Side {
    /// Serves one connection to its end.
    async fn handle(self: Arc<Self>, mut client: TcpStream, rules: Arc<Rules>) {
        let (lease, limits) = (self.lease.0, self.common.limits);
        let Ok(asked) = sockopt::ip_original_dst(&client) else { return };
        let _ = client.set_nodelay(true);
        let hello = match timeout(limits.hello, hello::read(&mut client)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(refusal)) => {
                tracing::debug!(lease, %asked, reason = %refusal, "refused a connection of a sandbox");
                refusal.tell(&mut client).await;
                return;
            }
            Err(_) => return,
        };
        let is_ruled = rules.policy.headers.iter().any(|header| header.is_about(&hello.name, asked.port()));
        if is_ruled {
            // After a restart of the daemon, sandboxes run before its records are read.
            let _ = timeout(limits.hello, self.common.vault.ready()).await;
        }
        let passed = match is_ruled {
            true => self.terminate(client, hello, asked.port(), &rules).await,
            false => self.pass_on(client, hello, asked, &rules).await,
        };
        if let Err(reason) = passed {
            tracing::debug!(lease, %asked, reason, "a connection of a sandbox ended early");
        }
    }

    /// Ends the TLS of the sandbox and serves its requests.
    async fn terminate(
        self: Arc<Self>,
        mut client: TcpStream,
        Hello { name, bytes }: Hello,
        port: u16,
        rules: &Arc<Rules>,
    ) -> Result<(), String> {
        let Some(header) = rules.policy.headers.first() else { return Ok(()) };
        // All header rules of a sandbox are of its project.
        let config = match self.common.vault.authority(&header.project) {
            Ok(authority) => self.common.certificates.of(&authority, &name),
            Err(error) => Err(error.to_string()),
        };
        let config = match config {
            Ok(config) => config,
            Err(reason) => {
                refusal::Refusal::Internal(reason.clone()).tell(&mut client).await;
                return Err(reason);
            }
        };
        let accepting = tokio_rustls::TlsAcceptor::from(config).accept(Replayed::new(bytes, client));
        let stream = match timeout(self.common.limits.hello, accepting).await {
            Ok(Ok(stream)) => stream,
            // The usual cause: the program does not trust the authority.
            Ok(Err(error)) => return Err(format!("TLS with the sandbox: {error}")),
            Err(_) => return Err("TLS with the sandbox took too long".to_owned()),
        };
        let upstream = Upstream::new(Destination { name, port }, Arc::clone(&self), Arc::clone(rules));
        request::serve(stream, upstream).await
    }

    /// Passes bytes on between the sandbox and a host without a header rule.
    async fn pass_on(
        &self,
        mut client: TcpStream,
        Hello { name, bytes }: Hello,
        asked: SocketAddrV4,
        rules: &Rules,
    ) -> Result<(), String> {
        let addresses = match rules.policy.judge.allows(*asked.ip()) {
            true => vec![*asked.ip()],
            false => self.resolve(&name, &rules.policy).await.unwrap_or_default(),
        };
        let mut host = match self.connect(&addresses, asked.port()).await {
            Ok(host) => host,
            Err(error) => {
                refusal::Refusal::Denied.tell(&mut client).await;
                return Err(format!("connecting to {name}: {error}"));
            }
        };
        let mut client = Replayed::new(bytes, client);
        let copied = tokio::io::copy_bidirectional(&mut client, &mut host).await;
        copied.map(drop).map_err(|error| error.to_string())
    }

    /// Connects to the first of these addresses that answers, from the gateway.
    async fn connect(&self, addresses: &[std::net::Ipv4Addr], port: u16) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::PermissionDenied, "the egress rules allow none of its addresses");
        for address in addresses.iter().take(upstream::ATTEMPTS) {
            let connecting = async {
                let socket = self.leases.socket(self.lease).await.map_err(io::Error::other)?;
                socket.connect(SocketAddr::from((*address, port))).await
            };
            match timeout(self.common.limits.connect, connecting).await {
                Ok(Ok(stream)) => {
                    upstream::keep_alive(&stream);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}
