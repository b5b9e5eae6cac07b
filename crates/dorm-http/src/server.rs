//! The accept loop: one task for each listener and each connection, and a shutdown that does not
//! wait for endless streams.
//!
//! Listeners on the network require a key and have limits (see [`crate::connections`]). The owner's
//! listener is a Unix socket to which only root and the daemon's own user may connect: it requires
//! no key, is not limited by connections from the network, and accepts paths of the host.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::connections::{Closing, Connections, Counted, Ticket};
use crate::door::{Door, Peer, Scheme};
use crate::life::Life;
use crate::request_body::RequestBody;
use crate::tls::{HANDSHAKE, Plain, Tls};

/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// After how much idle time the kernel first asks whether a client is still there.
const PROBED_AFTER: Duration = Duration::from_secs(30);
/// The time between two such questions.
const PROBED_EVERY: Duration = Duration::from_secs(10);
/// After how many of them without an answer the connection ends.
const PROBES: u32 = 3;
/// The wait after the system had no resources for another connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The response to a connection without TLS where it is required.
const NEEDS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 52\r\n\r\nthis address answers only to HTTPS: use https://...\n";
/// The largest number of headers in a request.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 128 << 10;

/// A door as the network sees it.
#[derive(Clone, Debug)]
pub struct NetworkDoor {
    /// Its routes.
    pub router: Router,
    /// The whole HTTP response to a connection for which there is no room.
    pub full: &'static [u8],
    /// Its TLS side; `None` to answer only connections without TLS.
    pub tls: Option<Tls>,
}

/// Accepts connections for any number of doors, until the life of the server ends.
#[derive(Debug)]
pub struct Server {
    life: Life,
    listeners: Vec<JoinHandle<()>>,
}

impl Server {
    /// A server without listeners.
    pub fn new(life: Life) -> Self {
        Self { life, listeners: Vec::new() }
    }

    /// The life of the server.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Serves a door to the network. `connections` counts those of every door together.
    pub fn at_network(&mut self, listener: TcpListener, connections: Arc<Connections>, door: NetworkDoor) {
        self.listeners.push(tokio::spawn(at_network(listener, connections, door, self.life.clone())));
    }

    /// Serves a door to the daemon's owner, without keys and limits.
    pub fn at_owners(&mut self, listener: UnixListener, router: Router) {
        self.listeners.push(tokio::spawn(at_owners(listener, router, self.life.clone())));
    }

    /// Returns after the stop, when every request in progress has ended or had this long to end.
    pub async fn run(self, grace: Duration) {
        for listener in self.listeners {
            if let Err(error) = listener.await {
                tracing::error!(%error, "a listener ended early");
            }
        }
        self.life.end(grace).await;
    }
}

/// Accepts connections from the network until the stop.
async fn at_network(listener: TcpListener, connections: Arc<Connections>, door: NetworkDoor, life: Life) {
    loop {
        let accepted = tokio::select! {
            () = life.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match connections.enter() {
                Some((ticket, closing)) => {
                    life.tasks.spawn(of_network(stream, peer, ticket, closing, door.clone(), life.clone()));
                }
                None => connections.refuse(&stream, door.full),
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
    door: NetworkDoor,
    life: Life,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection stays slow");
    }
    if let Err(error) = probe_when_idle(&stream) {
        tracing::debug!(%peer, %error, "a connection stays open when its client vanishes");
    }
    let stream = Counted::new(stream, ticket.clone());
    tokio::select! {
        // First, so that what has arrived is read before the connection is cut.
        biased;
        () = answered(stream, peer, ticket, door, life) => {}
        () = closing.overdue() => tracing::debug!(%peer, "a connection that showed no key was closed"),
    }
}

/// Has the kernel end an idle connection whose client has vanished. One with data in flight ends
/// after the retransmissions of the kernel. `TCP_USER_TIMEOUT` would end that sooner, but also the
/// connection of a living client that reads nothing for as long, such as a pager.
fn probe_when_idle(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBED_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

/// Serves a connection from the network, with TLS if it begins with a handshake.
async fn answered(mut stream: Counted, peer: SocketAddr, ticket: Arc<Ticket>, door: NetworkDoor, life: Life) {
    let NetworkDoor { router, tls, .. } = door;
    let (door, from) = (Door::Network(ticket), Some(Peer(peer.ip())));
    let Some(tls) = tls else {
        return connection(stream, door, from, Scheme::Http, router, life).await;
    };
    let first = tokio::select! {
        first = tokio::time::timeout(HEAD_WITHIN, stream.first()) => first,
        () = life.stop.cancelled() => return,
    };
    let Ok(Ok(Some(first))) = first else { return };
    if first != HANDSHAKE {
        if tls.plain == Plain::Refused {
            let _ = stream.try_write(NEEDS_TLS);
            return;
        }
        return connection(stream, door, from, Scheme::Http, router, life).await;
    }
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HEAD_WITHIN, tls.accept(stream)) => shaken,
        () = life.cut.cancelled() => return,
    };
    match shaken {
        Ok(Ok(stream)) => connection(stream, door, from, Scheme::Https, router, life).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
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
                    let (router, life) = (router.clone(), life.clone());
                    let tasks = life.tasks.clone();
                    tasks.spawn(connection(stream, Door::Owner, None, Scheme::Http, router, life));
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

async fn connection<S>(stream: S, door: Door, peer: Option<Peer>, scheme: Scheme, router: Router, life: Life)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let under_way = match &door {
            Door::Network(ticket) => Some(ticket.begin()),
            Door::Owner => None,
        };
        request.extensions_mut().insert(door.clone());
        request.extensions_mut().insert(scheme);
        peer.map(|peer| request.extensions_mut().insert(peer));
        let (head, body) = request.into_parts();
        let (body, unread) = RequestBody::new(body);
        let request = Request::from_parts(head, body);
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move {
            let mut answer = answer.await.unwrap_or_else(|never: Infallible| match never {});
            unread.tell(&mut answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_whether_the_client_of_an_idle_connection_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        probe_when_idle(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBED_AFTER);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBED_EVERY);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), PROBES);
        // A client that reads nothing for a while is not cut.
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 0);
    }
}
