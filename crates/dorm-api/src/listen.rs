//! The native API on the listeners of a server.

use std::sync::Arc;

use dorm_http::{Access, Connections, NetworkDoor, Server};
use tokio::net::{TcpListener, UnixListener};

use crate::error::FULL;
use crate::routes;

/// Serves the native API to the network, where `connections` are counted with those of other doors,
/// and to the daemon's owner.
pub fn open(
    server: &mut Server,
    access: Access,
    (network, owner): (TcpListener, UnixListener),
    connections: Arc<Connections>,
) {
    let tls = access.tls.clone();
    let router = routes::router(access, server.life().clone());
    server.at_network(network, connections, NetworkDoor { router: router.clone(), full: FULL, tls });
    server.at_owners(owner, router);
}
