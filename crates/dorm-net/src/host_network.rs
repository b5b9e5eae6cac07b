//! [`Network`] on this host. Turns blocking work into futures and keeps the state of this process:
//! the DNS forwarder and the connections of each lease. The leases themselves are always read from
//! the notes and the kernel, never from memory.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dorm_engine::{BoxStream, Lease, LeaseId, Network, NetworkError, PortStream, Traffic};
use dorm_lifecycle::Egress;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::command::Commands;
use crate::config::Config;
use crate::connectable::Connectable;
use crate::failed;
use crate::layout::{Layout, SANDBOX};
use crate::lease::{Leases, Made};
use crate::name_sockets::NameSockets;
use crate::names::{Forwarder, Learner, SharedPlaces};
use crate::notes::Notes;
use crate::policy::Policy;
use crate::proxy::{Common, Proxy};
use crate::way::Way;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The leases of one daemon on this host.
///
/// Dropping it leaves every lease in place for the next [`HostNetwork::open`]. DNS queries are only
/// answered while a `HostNetwork` is open; otherwise they are refused at once.
#[derive(Debug)]
pub struct HostNetwork {
    leases: Arc<Leases>,
    connectable: Connectable,
    forwarders: Mutex<BTreeMap<LeaseId, Forwarder>>,
    /// Those of leases that have or had header rules.
    proxies: Mutex<BTreeMap<LeaseId, Proxy>>,
    /// Held while a proxy is started, so that a lease has one.
    starting: tokio::sync::Mutex<()>,
    common: Arc<Common>,
    places: SharedPlaces,
    keeper: Keeper,
}

/// The task that ensures that the host still forwards packets of sandboxes. Dropping it ends the
/// task.
#[derive(Debug)]
struct Keeper(JoinHandle<()>);

impl Keeper {
    /// An interface that reappears, such as that of a tunnel, has lost its forwarding setting. No
    /// notification exists on all hosts, so the task polls: two small files for all sandboxes
    /// together.
    fn start(leases: &Arc<Leases>, every: Duration) -> Self {
        let leases = Arc::clone(leases);
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let leases = Arc::clone(&leases);
                if let Err(error) = blocking("watch the host's network", move || leases.keep_way()).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot let the host forward packets; sandboxes may not reach the internet"
                    );
                }
            }
        }))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HostNetwork {
    /// Adopts the existing leases, and removes those that are incomplete. Requires root.
    ///
    /// # Errors
    /// When the configuration is invalid, or the host refuses an operation, which the error names.
    pub async fn open(config: Config) -> Result<Self, NetworkError> {
        let layout = Layout::new(&config).map_err(|error| failed("read the configuration", error))?;
        let every = config.watch_every;
        let common = Common::new(config.vault.clone(), config.dns.clone(), config.proxy, &config.also_trusted)?;
        let opened = blocking("open the host's network", move || {
            let directory = config.directory.display().to_string();
            let notes = Notes::open(&config.directory, config.owner)
                .map_err(|error| failed(format!("open the notes of network leases in {directory}"), error))?;
            let commands = Commands::of_daemon(&config.directory)
                .map_err(|error| failed(format!("lock {directory}: is another daemon using this directory?"), error))?;
            let (servers, limits, steps) = (config.dns, config.limits, config.steps);
            let leases =
                Leases { layout, notes, commands, servers, limits, steps, way: Way::default(), unshaped: Once::new() };
            let whole = leases.recover()?;
            let sockets: Vec<_> = whole.into_iter().map(|(id, egress)| (id, egress, leases.name_sockets(id))).collect();
            Ok((leases, sockets))
        });
        let (leases, found) = opened.await?;
        let leases = Arc::new(leases);
        let keeper = Keeper::start(&leases, every);
        let network = Self {
            leases,
            connectable: Connectable::default(),
            forwarders: Mutex::default(),
            proxies: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            common: Arc::new(common),
            places: SharedPlaces::default(),
            keeper,
        };
        for (id, egress, sockets) in found {
            network.connectable.add(id);
            if let Err(error) = network.serve_headers(id, &egress).await {
                let error = &error as &dyn std::error::Error;
                tracing::error!(lease = id.0, error, "cannot carry out the header rules of a sandbox");
            }
            let served = sockets.and_then(|sockets| network.serve_names(id, sockets, policy(&egress)?));
            if let Err(error) = served {
                tracing::error!(
                    lease = id.0,
                    error = &error as &dyn std::error::Error,
                    "cannot serve DNS to a sandbox"
                );
            }
        }
        Ok(network)
    }

    /// Stops answering DNS queries. Every lease stays; no other method may be called afterwards.
    pub async fn close(&self) {
        self.keeper.0.abort();
        let forwarders = std::mem::take(&mut *self.forwarders());
        for forwarder in forwarders.into_values() {
            forwarder.stop().await;
        }
        let proxies = std::mem::take(&mut *self.proxies());
        for proxy in proxies.into_values() {
            proxy.stop().await;
        }
    }

    /// Removes every lease, and everything on the host with this prefix, recorded or not. For
    /// uninstalling and tests.
    ///
    /// # Errors
    /// When the host refuses to remove something.
    pub async fn remove_all(&self) -> Result<(), NetworkError> {
        self.close().await;
        let leases = Arc::clone(&self.leases);
        blocking("remove all network leases", move || leases.remove_all()).await
    }

    fn serve_names(&self, id: LeaseId, sockets: NameSockets, policy: Policy) -> Result<(), NetworkError> {
        let learner = Learner::new(Arc::clone(&self.leases), id, Arc::clone(&self.places.commands));
        let forwarder = Forwarder::start(sockets, self.leases.servers.clone(), policy, learner, &self.places)
            .map_err(|error| failed(format!("serve DNS to network lease {}", id.0), error))?;
        self.forwarders().insert(id, forwarder);
        Ok(())
    }

    /// Starts the proxy of an adopted lease that has header rules.
    async fn serve_headers(&self, id: LeaseId, egress: &Egress) -> Result<(), NetworkError> {
        match egress.headers().is_empty() {
            true => Ok(()),
            false => self.start_proxy(id, policy(egress)?).await,
        }
    }

    async fn start_proxy(&self, id: LeaseId, policy: Policy) -> Result<(), NetworkError> {
        let _turn = self.starting.lock().await;
        if self.proxies().contains_key(&id) {
            return Ok(());
        }
        let listener = self.leases.proxy_socket(id).await?;
        self.run_proxy(id, listener, policy)
    }

    fn run_proxy(&self, id: LeaseId, listener: TcpListener, policy: Policy) -> Result<(), NetworkError> {
        let of = (Arc::clone(&self.leases), id);
        let proxy = Proxy::start(listener, policy, of, Arc::clone(&self.common))
            .map_err(|error| failed(format!("carry out header rules of network lease {}", id.0), error))?;
        self.proxies().insert(id, proxy);
        Ok(())
    }

    fn proxies(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Proxy>> {
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forwarders(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Forwarder>> {
        self.forwarders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Network for HostNetwork {
    async fn lease(&self, egress: &Egress) -> Result<Lease, NetworkError> {
        let (policy, egress) = (policy(egress)?, egress.clone());
        let (leases, first) = (Arc::clone(&self.leases), policy.clone());
        let (send, receive) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let made = leases.make(&egress, &first);
            let made =
                made.map(|Made { id, names, headers }| (Unclaimed { leases, id, claim: Claim::Open }, names, headers));
            // If the caller is gone, the value is dropped, which removes the lease.
            let _ = send.send(made);
        });
        let lost = |error| failed("create a network lease", error);
        let (unclaimed, names, headers) = receive.await.map_err(lost)??;
        let proxied = headers.map_or(Ok(()), |listener| self.run_proxy(unclaimed.id, listener, policy.clone()));
        if let Err(error) = proxied.and_then(|()| self.serve_names(unclaimed.id, names, policy)) {
            self.proxies().remove(&unclaimed.id);
            return Err(error);
        }
        self.connectable.add(unclaimed.id);
        Ok(unclaimed.take())
    }

    async fn allow(&self, lease: LeaseId, egress: &Egress) -> Result<(), NetworkError> {
        let (policy, egress) = (policy(egress)?, egress.clone());
        let leases = Arc::clone(&self.leases);
        if !policy.headers.is_empty() {
            // Nothing arrives at it until the rules of packets say so.
            self.start_proxy(lease, Policy::nothing()).await?;
        }
        let change = self.forwarders().get(&lease).map(Forwarder::change);
        let changing = match change {
            Some(change) => Some(change.await),
            None => None,
        };
        let change = self.proxies().get(&lease).map(Proxy::change);
        let proxying = match change {
            Some(change) => Some(change.await),
            None => None,
        };
        // The locks move into the work, which continues when the caller is gone.
        let set = move || {
            leases.set_policy(lease, &egress, &policy)?;
            let former = proxying.map(|proxying| proxying.done(policy.clone()));
            if let Some(changing) = changing {
                changing.done(policy);
            }
            Ok(former)
        };
        if let Some(former) = blocking("change the egress", set).await? {
            former.end().await;
        }
        Ok(())
    }

    async fn connect(&self, lease: LeaseId, port: u16) -> Result<BoxStream, NetworkError> {
        let fail = |error| failed(format!("connect to port {port} of network lease {}", lease.0), error);
        let released = self.connectable.released(lease).ok_or(NetworkError::NoLease(lease))?;
        self.leases.gateway(lease)?;
        let connecting = self.leases.socket(lease).await?.connect((SANDBOX, port).into());
        let connected = tokio::time::timeout(CONNECT_LIMIT, connecting).await;
        let stream = connected.map_err(|elapsed| fail(elapsed.into()))?.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => NetworkError::Refused(port),
            _ => fail(error),
        })?;
        stream.set_nodelay(true).map_err(fail)?;
        Ok(Box::new(PortStream::new(stream, released)))
    }

    async fn traffic(&self, lease: LeaseId) -> Result<Traffic, NetworkError> {
        let leases = Arc::clone(&self.leases);
        blocking("count traffic", move || leases.traffic(lease)).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), NetworkError> {
        self.connectable.remove(lease);
        let forwarder = self.forwarders().remove(&lease);
        if let Some(forwarder) = forwarder {
            forwarder.stop().await;
        }
        let proxy = self.proxies().remove(&lease);
        if let Some(proxy) = proxy {
            proxy.stop().await;
        }
        let leases = Arc::clone(&self.leases);
        blocking("release a network lease", move || leases.remove(lease)).await
    }

    async fn leases(&self) -> Result<Vec<Lease>, NetworkError> {
        let leases = Arc::clone(&self.leases);
        let found = blocking("list network leases", move || leases.list()).await?;
        Ok(found.into_iter().map(|id| self.leases.layout.lease(id)).collect())
    }
}

/// A lease that is complete but not yet returned to the caller.
struct Unclaimed {
    leases: Arc<Leases>,
    id: LeaseId,
    claim: Claim,
}

#[derive(PartialEq)]
enum Claim {
    Open,
    Taken,
}

impl Unclaimed {
    fn take(mut self) -> Lease {
        self.claim = Claim::Taken;
        self.leases.layout.lease(self.id)
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if self.claim == Claim::Open {
            let (id, leases) = (self.id, Arc::clone(&self.leases));
            std::thread::spawn(move || {
                if let Err(error) = leases.remove(id) {
                    tracing::warn!(
                        lease = id.0,
                        error = &error as &dyn std::error::Error,
                        "cannot remove a network lease"
                    );
                }
            });
        }
    }
}

fn policy(egress: &Egress) -> Result<Policy, NetworkError> {
    Policy::of(egress).map_err(|error| failed("read the egress", error))
}

async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T, NetworkError> + Send + 'static,
) -> Result<T, NetworkError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| failed(operation, error))?
}
