//! The state that every request can use.

use dorm_http::{Access, Gateway, Life};
use dorm_lifecycle::DoorId;
use metrics_exporter_prometheus::PrometheusHandle;

/// The id of this door in records.
pub(crate) const DOOR: DoorId = DoorId::known("api");

/// The state that every handler can use.
#[derive(Clone)]
pub(crate) struct Api {
    /// Handlers use the service of their request instead of that of the daemon: see
    /// `extract::ForRequest`.
    pub(crate) access: Access,
    pub(crate) life: Life,
    pub(crate) metrics: Option<PrometheusHandle>,
}

impl Api {
    /// The gateway to ports, with the same keys, hosts and life.
    pub(crate) fn gateway(&self) -> Gateway {
        Gateway { door: DOOR, access: self.access.clone(), life: self.life.clone() }
    }
}
