//! The accept loop: one task for each connection, and an end that does not wait for endless streams.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use dorm_service::Service;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::hosts::Access;
use crate::{routes, webhooks};

/// How long a client may take to send a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How long requests in progress may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// The wait after the system had no room for another connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The life of a server, for streams that outlive the request they began with.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// No new requests are taken; endless streams end.
    pub(crate) stop: CancellationToken,
    /// Whatever still goes on is cut.
    pub(crate) cut: CancellationToken,
    /// Everything that has to end before the server has.
    pub(crate) tasks: TaskTracker,
}

/// Serves the native API and the gateway until `stop`, then lets requests in progress end for 5 seconds and cuts what
/// is left. Sandboxes are not touched by the end.
///
/// # Errors
/// None at present: whatever befalls one connection ends that one.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    access: impl Into<Access>,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_with_grace(listener, service, access, stop, GRACE).await
}

/// [`serve`], with another time that requests in progress are given after the stop.
///
/// # Errors
/// Those of [`serve`].
pub async fn serve_with_grace(
    listener: TcpListener,
    service: Service,
    access: impl Into<Access>,
    stop: CancellationToken,
    grace: Duration,
) -> io::Result<()> {
    let life = Life { stop, cut: CancellationToken::new(), tasks: TaskTracker::new() };
    life.tasks.spawn(webhooks::run(service.clone(), life.stop.clone()));
    let router = routes::router(service, access.into(), life.clone());
    loop {
        let accepted = tokio::select! {
            () = life.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                life.tasks.spawn(connection(stream, peer, router.clone(), life.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    life.tasks.close();
    if tokio::time::timeout(grace, life.tasks.wait()).await.is_err() {
        life.cut.cancel();
        life.tasks.wait().await;
    }
    Ok(())
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, life: Life) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection stays slow");
    }
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never: Infallible| match never {})) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
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
        tracing::debug!(%peer, error = &error as &dyn std::error::Error, "a connection broke");
    }
}
