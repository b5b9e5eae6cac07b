//! The doors of the daemon. This is the only file that names them.

use std::sync::Arc;

use dorm_http::{Access, Connections, Life, Server};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

/// The listeners of the doors.
pub(crate) struct Listeners {
    /// The network listener of the native API.
    pub(crate) api: TcpListener,
    /// The owner's socket, for the native API.
    pub(crate) owner: UnixListener,
    /// That of the door for clients of E2B; `None` if it is off.
    pub(crate) e2b: Option<TcpListener>,
}

/// Opens every door, and starts to send webhooks. They are sent once, however many doors there are.
pub(crate) fn open(
    access: Access,
    listeners: Listeners,
    connections: Arc<Connections>,
    stop: &CancellationToken,
) -> Server {
    let mut server = Server::new(Life::until(stop.clone()));
    server.life().tasks.spawn(dorm_api::send_webhooks(access.daemon.clone(), stop.clone()));
    let Listeners { api, owner, e2b } = listeners;
    if let Some(e2b) = e2b {
        dorm_e2b::open(&mut server, access.clone(), e2b, connections.clone());
    }
    dorm_api::open(&mut server, access, (api, owner), connections);
    server
}
