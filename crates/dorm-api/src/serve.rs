//! The accept loop: two listeners, one task for each connection, and a shutdown that does not wait
//! for endless streams.
//!
//! The network listener requires a key and has limits (see [`crate::connections`]). The owner's
//! listener is a Unix socket to which only root and the daemon's own user may connect: it requires
//! no key, is not limited by connections from the network, and accepts paths of the host.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use dorm_service::Service;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{Closing, ConnectionLimits, Connections, Counted, Ticket};
use crate::door::{Door, Peer};
use crate::hosts::Access;
use crate::state::Life;
use crate::{routes, webhooks};

/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How long requests in progress may continue after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// The wait after the system had no resources for another connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The largest number of headers in a request.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 128 << 10;

/// The listeners of a server.
#[derive(Debug)]
pub struct Doors {
    network: TcpListener,
    owner: Option<UnixListener>,
    limits: ConnectionLimits,
}

impl Doors {
    /// The network listener with these limits, and the owner's socket.
    pub fn new(network: TcpListener, owner: UnixListener, limits: ConnectionLimits) -> Self {
        Self { network, owner: Some(owner), limits }
    }
}

impl From<TcpListener> for Doors {
    fn from(network: TcpListener) -> Self {
        Self { network, owner: None, limits: ConnectionLimits::default() }
    }
}

/// Serves the native API and the gateway until `stop`, then gives requests in progress 5 seconds to
/// end and closes the remaining connections. Sandboxes are not affected.
///
/// # Errors
/// None at present: an error on one connection ends only that connection.
pub async fn serve(
    doors: impl Into<Doors>,
    service: Service,
    access: impl Into<Access>,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_with_grace(doors, service, access, stop, GRACE).await
}

/// [`serve`] with another time for requests in progress after the stop.
///
/// # Errors
/// Those of [`serve`].
pub async fn serve_with_grace(
    doors: impl Into<Doors>,
    service: Service,
    access: impl Into<Access>,
    stop: CancellationToken,
    grace: Duration,
) -> io::Result<()> {
    let life = Life { stop, cut: CancellationToken::new(), tasks: TaskTracker::new() };
    life.tasks.spawn(webhooks::run(service.clone(), life.stop.clone()));
    let router = routes::router(service, access.into(), life.clone());
    let Doors { network, owner, limits } = doors.into();
    let mut doors = vec![tokio::spawn(at_network(network, Connections::new(limits), router.clone(), life.clone()))];
    doors.extend(owner.map(|owner| tokio::spawn(at_owners(owner, router, life.clone()))));
    for door in doors {
        let _ = door.await;
    }
    life.tasks.close();
    if tokio::time::timeout(grace, life.tasks.wait()).await.is_err() {
        life.cut.cancel();
        life.tasks.wait().await;
    }
    Ok(())
}

/// Accepts connections from the network until the stop.
async fn at_network(listener: TcpListener, connections: Arc<Connections>, router: Router, life: Life) {
    loop {
        let accepted = tokio::select! {
            () = life.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match connections.enter() {
                Some((ticket, closing)) => {
                    life.tasks.spawn(of_network(stream, peer, ticket, closing, router.clone(), life.clone()));
                }
                None => connections.refuse(&stream),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn of_network(
    stream: TcpStream,
    peer: SocketAddr,
    ticket: Arc<Ticket>,
    closing: Closing,
    router: Router,
    life: Life,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection stays slow");
    }
    let (door, from) = (Door::Network(ticket.clone()), Some(Peer(peer.ip())));
    tokio::select! {
        () = connection(Counted::new(stream, ticket), door, from, router, life) => {}
        () = closing.asked() => tracing::debug!(%peer, "a connection that showed no key was closed"),
    }
}

/// Accepts connections on the owner's socket until the stop.
async fn at_owners(listener: UnixListener, router: Router, life: Life) {
    loop {
        let accepted = tokio::select! {
            () = life.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match is_owner(&stream) {
                Ok(()) => {
                    life.tasks.spawn(connection(stream, Door::Owner, None, router.clone(), life.clone()));
                }
                Err(user) => tracing::warn!(user, "a connection to the owner's socket by another user was closed"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection to the owner's socket could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Whether root or the daemon's own user has connected; otherwise the uid of the other user, if it
/// is known.
fn is_owner(stream: &UnixStream) -> Result<(), Option<u32>> {
    let user = stream.peer_cred().map_err(|_| None)?.uid();
    if user == 0 || user == rustix::process::geteuid().as_raw() { Ok(()) } else { Err(Some(user)) }
}

async fn connection<S>(stream: S, door: Door, peer: Option<Peer>, router: Router, life: Life)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let under_way = match &door {
            Door::Network(ticket) => Some(ticket.begin()),
            Door::Owner => None,
        };
        request.extensions_mut().insert(door.clone());
        peer.map(|peer| request.extensions_mut().insert(peer));
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move {
            let answer = answer.await.unwrap_or_else(|never: Infallible| match never {});
            drop(under_way);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = life.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = life.cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(?peer, error = &error as &dyn std::error::Error, "a connection broke");
    }
}
