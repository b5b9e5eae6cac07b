//! The state that every request can use.

use axum::extract::Request;
use dorm_http::{Access, Door, Gateway, Life, Standing};
use dorm_lifecycle::DoorId;

/// The id of this door in records, and the name of its part of a sandbox's annotations.
pub const DOOR: DoorId = DoorId::known("e2b");

/// The release of `envd` whose behaviour clients get.
pub(crate) const ENVD_VERSION: &str = "0.6.13";

/// The state that every request can use.
#[derive(Clone)]
pub(crate) struct E2b {
    /// The keys and hosts of the door, and the service of the daemon.
    pub(crate) access: Access,
    /// The life of the server.
    pub(crate) life: Life,
}

impl E2b {
    /// The gateway to ports, with the same keys, hosts and life.
    pub(crate) fn gateway(&self) -> Gateway {
        Gateway { door: DOOR, access: self.access.clone(), life: self.life.clone() }
    }
}

/// Notes what the client of a connection has shown, so that the connection may stay open. Returns
/// whether there is room for it.
pub(crate) fn stand(request: &Request, standing: Standing) -> bool {
    match request.extensions().get::<Door>() {
        Some(Door::Network(ticket)) => ticket.stand(standing),
        Some(Door::Owner) | None => true,
    }
}
