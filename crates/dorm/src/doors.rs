//! The doors of the daemon. This is the only file that names them.

use std::sync::Arc;

use dorm_http::{Access, Connections, Life, NetworkDoor, Server};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

/// Opens every door, and starts to send webhooks. They are sent once, however many doors there are.
pub(crate) fn open(
    access: Access,
    (network, owner): (TcpListener, UnixListener),
    connections: Arc<Connections>,
    stop: &CancellationToken,
) -> Server {
    let life = Life::until(stop.clone());
    life.tasks.spawn(dorm_api::send_webhooks(access.daemon.clone(), stop.clone()));
    let tls = access.tls.clone();
    let native = dorm_api::router(access, life.clone());
    let mut server = Server::new(life);
    server.at_network(network, connections, NetworkDoor { router: native.clone(), full: dorm_api::FULL, tls });
    server.at_owners(owner, native);
    server
}
