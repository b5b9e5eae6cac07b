//! The doors of the daemon. This is the only file that names them.

use std::sync::Arc;

use dorm_http::{Access, Connections, Life, Server};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

/// Opens every door, and starts to send webhooks. They are sent once, however many doors there are.
pub(crate) fn open(
    access: Access,
    (network, owner): (TcpListener, UnixListener),
    connections: Arc<Connections>,
    stop: &CancellationToken,
) -> Server {
    let mut server = Server::new(Life::until(stop.clone()));
    server.life().tasks.spawn(dorm_api::send_webhooks(access.daemon.clone(), stop.clone()));
    dorm_api::open(&mut server, access, (network, owner), connections);
    server
}
