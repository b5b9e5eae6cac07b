//! The door on the listener of a server.

use std::sync::Arc;

use axum::Router;
use dorm_http::{Access, Connections, NetworkDoor, Server};
use tokio::net::TcpListener;

use crate::dispatch;
use crate::door::E2b;
use crate::error::FULL;

/// Serves the door to the network, where `connections` are counted with those of other doors.
pub fn open(server: &mut Server, access: Access, network: TcpListener, connections: Arc<Connections>) {
    let tls = access.tls.clone();
    let door = E2b { access, life: server.life().clone() };
    let router = Router::new().fallback(dispatch::dispatch).with_state(door);
    server.at_network(network, connections, NetworkDoor { router, full: FULL, tls });
}
