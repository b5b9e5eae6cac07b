//! Creates, completes and removes leases. Everything here blocks and runs on threads for that
//! purpose.
//!
//! The process may die between any two changes. The note is written first and says `making` until
//! after the last change; the next start removes what exists of such a lease. Removal works in any
//! state, and removes the note last.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use dorm_engine::{LeaseId, NetworkError, Traffic};
use dorm_lifecycle::Egress;
use dorm_steps::AnySteps;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::TcpSocket;

use crate::command::{CommandError, Commands};
use crate::config::NameServers;
use crate::host::HostLock;
use crate::layout::{self, Layout, path};
use crate::limits::TrafficLimits;
use crate::links::{LinkError, Links, Shape};
use crate::name_sockets::NameSockets;
use crate::notes::{Noted, Notes, Stage};
use crate::policy::Policy;
use crate::way::Way;
use crate::{failed, forwarding, interfaces, link, namespace, ruleset, wiring};

/// A new lease, and the sockets of this daemon in its gateway.
pub(crate) struct Made {
    pub(crate) id: LeaseId,
    pub(crate) names: NameSockets,
    /// The one for connections that header rules are about, if there are such rules.
    pub(crate) headers: Option<TcpListener>,
}

/// The addresses of a group of names that were permitted before others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Earlier {
    Kept,
    /// There was no room for all.
    Removed,
}

/// The leases of one daemon on this host.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) layout: Layout,
    pub(crate) notes: Notes,
    pub(crate) commands: Commands,
    pub(crate) servers: NameServers,
    pub(crate) limits: TrafficLimits,
    pub(crate) steps: AnySteps,
    pub(crate) way: Way,
    /// Used to log once that this host cannot shape traffic.
    pub(crate) unshaped: Once,
}

impl Leases {
    /// Creates a lease with a policy, which must be that of `egress`.
    pub(crate) fn make(&self, egress: &Egress, policy: &Policy) -> Result<Made, NetworkError> {
        let mtu = interfaces::uplink_mtu();
        let id = self.begin(mtu)?;
        let furnished =
            self.furnish(id, mtu, policy).map_err(|error| failed(format!("set up network lease {}", id.0), error));
        let done = furnished.and_then(|(names, headers)| {
            self.note(id, Stage::Made, egress)?;
            self.reach(id, "net: lease noted")?;
            Ok(Made { id, names, headers })
        });
        if done.is_err() {
            self.give_up(id);
        }
        done
    }

    /// Removes whatever exists of a lease.
    pub(crate) fn remove(&self, id: LeaseId) -> Result<(), NetworkError> {
        let fail = |source| failed(format!("remove network lease {}", id.0), source);
        self.remove_parts(id).map_err(fail)?;
        self.reach(id, "net: lease taken apart")?;
        let lock = HostLock::take().map_err(|error| failed("lock the host's network", error))?;
        self.notes.remove(id).map_err(|error| failed(format!("remove the note of network lease {}", id.0), error))?;
        self.reach(id, "net: lease forgotten")?;
        self.close_way_after_last(&lock)?;
        self.reach(id, "net: lease removed")
    }

    fn reach(&self, id: LeaseId, step: &'static str) -> Result<(), NetworkError> {
        self.steps
            .reach(step)
            .map_err(|stopped| failed(format!("continue past a step of network lease {}", id.0), stopped))
    }

    /// Removes everything with this daemon's prefix, recorded or not.
    pub(crate) fn remove_all(&self) -> Result<(), NetworkError> {
        let mut ids: BTreeSet<LeaseId> = self.noted()?;
        let names = match std::fs::read_dir(layout::NAMESPACES) {
            Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
            Err(_) => Vec::new(),
        };
        ids.extend(names.iter().filter_map(|name| Layout::id_in(name, &self.layout.namespaces_start())));
        let links = interfaces::interfaces().map_err(|error| failed("list the host's interfaces", error))?;
        ids.extend(links.iter().filter_map(|name| Layout::id_in(name, &self.layout.uplinks_start())));
        for id in ids {
            self.remove(id)?;
        }
        let lock = HostLock::take().map_err(|error| failed("lock the host's network", error))?;
        self.close_way_after_last(&lock)
    }

    /// Returns the complete leases and their recorded egress, after a restart. Removes incomplete
    /// leases.
    pub(crate) fn recover(&self) -> Result<Vec<(LeaseId, Egress)>, NetworkError> {
        let notes = self.notes.list().map_err(|error| failed("read the notes of network leases", error))?;
        let mut whole = Vec::new();
        for (id, Noted { stage, egress }) in notes {
            let is_kept = stage != Stage::Making && self.is_whole(id)?;
            if is_kept && stage == Stage::Unclear {
                // A live sandbox may use the lease; an unused one is released when its container is
                // removed.
                tracing::warn!(
                    lease = id.0,
                    "cannot read the note of a network lease; keeping the lease, which is complete"
                );
                // The names that it may resolve are lost, so it may resolve none.
                self.note(id, Stage::Made, &egress)?;
            }
            if is_kept {
                whole.push((id, egress));
            } else {
                tracing::info!(lease = id.0, "removing the remains of a network lease");
                self.give_up(id);
            }
        }
        if !whole.is_empty() {
            let lock = HostLock::take().map_err(|error| failed("lock the host's network", error))?;
            self.way
                .open(&lock, &self.layout, &self.commands)
                .map_err(|error| failed("let sandboxes reach the internet", error))?;
            drop(lock);
            self.keep_way()?;
        }
        Ok(whole)
    }

    /// Makes the host forward packets of every lease again, on all interfaces on which replies
    /// arrive now.
    pub(crate) fn keep_way(&self) -> Result<(), NetworkError> {
        let fail = |error| failed("let the host forward packets of sandboxes", error);
        let links = interfaces::interfaces().map_err(fail)?;
        let uplinks: Vec<_> = links.iter().filter(|name| name.starts_with(&self.layout.uplinks_start())).collect();
        uplinks.iter().try_for_each(|uplink| forwarding::open_uplink(uplink)).map_err(fail)?;
        if uplinks.is_empty() || forwarding::is_open().map_err(fail)? {
            return Ok(());
        }
        let lock = HostLock::take().map_err(|error| failed("lock the host's network", error))?;
        // The last lease, and with it the host's rules, may have been removed meanwhile.
        if self.noted()?.is_empty() {
            return Ok(());
        }
        Way::forward(&lock).map_err(|error| failed("let the host forward packets of sandboxes", error))
    }

    /// Returns the complete leases.
    pub(crate) fn list(&self) -> Result<Vec<LeaseId>, NetworkError> {
        let notes = self.notes.list().map_err(|error| failed("read the notes of network leases", error))?;
        let mut whole = Vec::new();
        for (id, _) in notes.into_iter().filter(|(_, noted)| noted.stage == Stage::Made) {
            if self.is_whole(id)? {
                whole.push(id);
            }
        }
        Ok(whole)
    }

    /// Replaces the policy of a lease. `policy` must be that of `egress`.
    ///
    /// The egress is recorded first. If the process dies before the packet rules are changed, the
    /// set of names that resolve may differ from the set of reachable addresses: the run with this
    /// egress has not started by then, or its change of egress is repeated. If the rules cannot be
    /// changed, the previous egress is recorded again.
    pub(crate) fn set_policy(&self, id: LeaseId, egress: &Egress, policy: &Policy) -> Result<(), NetworkError> {
        let gateway = self.gateway(id)?;
        let before = self.notes.get(id).map_err(|error| failed("read the notes of network leases", error))?;
        self.note(id, Stage::Made, egress)?;
        self.reach(id, "net: egress noted")?;
        let change = namespace::inside(&gateway, || self.commands.nft(&ruleset::egress(policy)));
        let fail = |error| failed(format!("change the egress of network lease {}", id.0), error);
        let changed =
            change.map_err(|error| self.gone_or(id, error)).and_then(|set| set.map_err(|error| fail(Box::new(error))));
        if changed.is_err()
            && let Some(before) = before
        {
            self.note(id, Stage::Made, &before.egress)?;
        }
        changed?;
        self.reach(id, "net: egress set")
    }

    /// Permits addresses of resolved names of a group for a limited time.
    pub(crate) fn permit(
        &self,
        id: LeaseId,
        group: usize,
        addresses: &[(Ipv4Addr, Duration)],
    ) -> Result<Earlier, NetworkError> {
        let permit = ruleset::permit(group, addresses);
        let change = namespace::inside(&self.gateway(id)?, || {
            // The set may be full of addresses that were learned earlier.
            self.commands.nft(&permit).map(|()| Earlier::Kept).or_else(|_| {
                let alone = format!("{}{permit}", ruleset::forget(group));
                self.commands.nft(&alone).map(|()| Earlier::Removed)
            })
        });
        let fail = |error| failed(format!("permit addresses for network lease {}", id.0), error);
        change.map_err(|error| self.gone_or(id, error))?.map_err(|error| fail(Box::new(error)))
    }

    /// Opens the DNS sockets of a lease that was adopted.
    pub(crate) fn name_sockets(&self, id: LeaseId) -> Result<NameSockets, NetworkError> {
        let sockets = namespace::inside(&path(&self.layout.gateway_namespace(id)), NameSockets::bind);
        sockets.and_then(|bound| bound).map_err(|error| failed(format!("serve DNS to network lease {}", id.0), error))
    }

    /// Opens the socket of a lease on which the connections arrive that header rules are about.
    pub(crate) async fn proxy_socket(&self, id: LeaseId) -> Result<TcpListener, NetworkError> {
        let fail = |error: io::Error| failed(format!("listen for header rules of network lease {}", id.0), error);
        let gateway = path(&self.layout.gateway_namespace(id));
        let bound = namespace::inside_soon(&gateway, bind_proxy);
        bound.await.map_err(|error| self.gone_or(id, error))?.map_err(fail)
    }

    /// Returns a socket for one connection from the gateway of a lease.
    pub(crate) async fn socket(&self, id: LeaseId) -> Result<TcpSocket, NetworkError> {
        let gateway = path(&self.layout.gateway_namespace(id));
        // A socket belongs to the namespace in which it was created, wherever it is used.
        let made = namespace::inside_soon(&gateway, || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        });
        let fail = |error: io::Error| failed(format!("make a socket of network lease {}", id.0), error);
        let socket = made.await.map_err(|error| self.gone_or(id, error))?.map_err(|error| fail(error.into()))?;
        Ok(TcpSocket::from_std_stream(TcpStream::from(socket)))
    }

    /// Returns the path of a lease's gateway namespace.
    pub(crate) fn gateway(&self, id: LeaseId) -> Result<std::path::PathBuf, NetworkError> {
        let stage = self.notes.get(id).map_err(|error| failed("read the notes of network leases", error))?;
        match stage.map(|noted| noted.stage) {
            Some(Stage::Made) => Ok(path(&self.layout.gateway_namespace(id))),
            Some(Stage::Making | Stage::Unclear) | None => Err(NetworkError::NoLease(id)),
        }
    }

    /// Returns the error for a namespace that could not be entered.
    pub(crate) fn gone_or(&self, id: LeaseId, error: io::Error) -> NetworkError {
        if namespace::exists(&path(&self.layout.gateway_namespace(id))) {
            failed(format!("enter the gateway of network lease {}", id.0), error)
        } else {
            NetworkError::NoLease(id)
        }
    }

    /// Chooses a number, records it, and creates what is visible to other daemons, all under the
    /// host's lock.
    fn begin(&self, mtu: u16) -> Result<LeaseId, NetworkError> {
        let lock = HostLock::take().map_err(|error| failed("lock the host's network; run as root", error))?;
        let noted = self.notes.taken().map_err(|error| failed("read the notes of network leases", error))?;
        let free = lock.free(&self.layout, &noted).map_err(|error| failed("read the host's networks", error))?;
        let id = free.map_err(NetworkError::Exhausted)?;
        self.note(id, Stage::Making, &Egress::None)?;
        self.reach(id, "net: lease begun")?;
        let made = self.join_host(&lock, id, mtu);
        drop(lock);
        let made = made.and_then(|()| self.reach(id, "net: uplink made"));
        if made.is_err() {
            self.give_up(id);
        }
        made.map(|()| id)
    }

    /// Creates the namespaces of a lease and its link to the host.
    fn join_host(&self, lock: &HostLock, id: LeaseId, mtu: u16) -> Result<(), NetworkError> {
        self.way
            .open(lock, &self.layout, &self.commands)
            .map_err(|error| failed("let sandboxes reach the internet", error))?;
        wiring::host(&self.layout, id, mtu).map_err(|error| failed(format!("create network lease {}", id.0), error))?;
        let uplink = self.layout.uplink(id);
        forwarding::open_uplink(&uplink)
            .map_err(|error| failed(format!("let the host forward packets of {uplink}"), error))
    }

    /// Configures the two namespaces, which nothing else uses yet.
    fn furnish(&self, id: LeaseId, mtu: u16, policy: &Policy) -> Result<(NameSockets, Option<TcpListener>), Error> {
        let (sandbox, gateway) = (path(&self.layout.sandbox_namespace(id)), path(&self.layout.gateway_namespace(id)));
        let links = || -> Result<(), Error> {
            namespace::inside(&gateway, || -> Result<(), Error> {
                quiet()?;
                set("ipv4/ip_forward", "1")?;
                // Every refused packet gets a reply, without a rate limit.
                set("ipv4/icmp_ratelimit", "0")?;
                forget_closed_connections_soon();
                Ok(wiring::gateway(&self.layout, id)?)
            })??;
            self.steps.reach("net: gateway furnished")?;
            namespace::inside(&sandbox, || -> Result<(), Error> {
                quiet()?;
                wiring::sandbox()?;
                Ok(link::settle(layout::SANDBOX_INTERFACE)?)
            })??;
            Ok(link::settle(&self.layout.uplink(id))?)
        };
        let script = ruleset::gateway(mtu, &self.limits) + &ruleset::egress(policy);
        let (rules, links) = std::thread::scope(|scope| {
            let rules = scope.spawn(|| namespace::inside(&gateway, || self.commands.nft(&script)));
            let links = links();
            (rules.join(), links)
        });
        rules.map_err(|_| "the thread that sets the packet rules panicked")???;
        links?;
        namespace::inside(&gateway, || -> Result<_, Error> {
            self.limit_rate()?;
            link::settle(layout::INNER_INTERFACE)?;
            link::settle(layout::UPLINK_INTERFACE)?;
            let headers = if policy.headers.is_empty() { None } else { Some(bind_proxy()?) };
            Ok((NameSockets::bind()?, headers))
        })?
    }

    /// Limits the traffic of the gateway in whose namespace this thread is.
    fn limit_rate(&self) -> Result<(), CommandError> {
        let Some(shape) = self.limits.shape() else { return Ok(()) };
        let Err(error) = shape_links(shape) else { return Ok(()) };
        self.unshaped.call_once(|| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "this host cannot shape traffic: packets beyond the limit of a sandbox are dropped, not delayed"
            );
        });
        self.commands.nft(&self.limits.policing())
    }

    /// Returns what a lease has sent and received, as counted by its uplink.
    pub(crate) fn traffic(&self, id: LeaseId) -> Result<Traffic, NetworkError> {
        self.gateway(id)?;
        let counted = interfaces::counted(&self.layout.uplink(id));
        let fail = |error| failed(format!("count the traffic of network lease {}", id.0), error);
        let (sent_bytes, received_bytes) = counted.map_err(fail)?.ok_or(NetworkError::NoLease(id))?;
        let limit_bytes_per_second = self.limits.bytes_per_second.map(std::num::NonZeroU64::get);
        Ok(Traffic { sent_bytes, received_bytes, limit_bytes_per_second })
    }

    fn remove_parts(&self, id: LeaseId) -> Result<(), Error> {
        let uplink = self.layout.uplink(id);
        Links::open()?.remove(&uplink)?;
        self.steps.reach("net: uplink removed")?;
        namespace::remove(&path(&self.layout.sandbox_namespace(id)))?;
        self.steps.reach("net: sandbox's namespace removed")?;
        namespace::remove(&path(&self.layout.gateway_namespace(id)))?;
        Ok(())
    }

    fn close_way_after_last(&self, lock: &HostLock) -> Result<(), NetworkError> {
        if self.noted()?.is_empty() {
            Way::close(lock, &self.layout, &self.commands)
                .map_err(|error| failed("remove the host's packet rules", error))?;
        }
        Ok(())
    }

    fn note(&self, id: LeaseId, stage: Stage, egress: &Egress) -> Result<(), NetworkError> {
        let noted = self.notes.write(id, stage, egress);
        noted.map_err(|error| failed(format!("record network lease {}", id.0), error))
    }

    fn give_up(&self, id: LeaseId) {
        if let Err(error) = self.remove(id) {
            tracing::warn!(
                lease = id.0,
                error = &error as &dyn std::error::Error,
                "cannot remove part of a network lease"
            );
        }
    }

    fn is_whole(&self, id: LeaseId) -> Result<bool, NetworkError> {
        let links = interfaces::interfaces().map_err(|error| failed("list the host's interfaces", error))?;
        let names = [self.layout.sandbox_namespace(id), self.layout.gateway_namespace(id)];
        Ok(links.contains(&self.layout.uplink(id)) && names.iter().all(|name| namespace::exists(&path(name))))
    }

    fn noted(&self) -> Result<BTreeSet<LeaseId>, NetworkError> {
        let notes = self.notes.list().map_err(|error| failed("read the notes of network leases", error))?;
        Ok(notes.into_keys().collect())
    }
}

/// Opens the socket for connections that header rules are about, in the namespace of this thread.
fn bind_proxy() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((layout::GATEWAY, ruleset::PROXY_PORT))?;
    listener.set_nonblocking(true).map(|()| listener)
}

/// Limits the rate of both links of the gateway in whose namespace this thread is.
fn shape_links(shape: Shape) -> Result<(), LinkError> {
    let mut links = Links::open()?;
    [layout::INNER_INTERFACE, layout::UPLINK_INTERFACE].iter().try_for_each(|name| links.shape(name, shape))
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Disables IPv6 in this thread's namespace, since the packet rules do not cover it.
fn quiet() -> Result<(), Error> {
    for scope in ["all", "default"] {
        let setting = format!("ipv6/conf/{scope}/disable_ipv6");
        if Path::new("/proc/sys/net").join(&setting).exists() {
            set(&setting, "1")?;
        }
    }
    Ok(())
}

/// Lets closed connections leave the connection table of this namespace as early as that of the
/// host, see [`ruleset::host`]. A kernel that lacks a setting keeps them longer.
fn forget_closed_connections_soon() {
    for (state, seconds) in ruleset::CLOSING {
        let _ = set(&format!("netfilter/nf_conntrack_tcp_timeout_{state}"), &seconds.to_string());
    }
}

fn set(setting: &str, value: &str) -> io::Result<()> {
    std::fs::write(Path::new("/proc/sys/net").join(setting), value)
}
