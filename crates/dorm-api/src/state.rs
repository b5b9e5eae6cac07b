//! The state that every request can use.

use std::sync::Arc;

use dorm_service::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::hosts::Domains;
use crate::keys::Keys;

/// The state that every handler can use.
#[derive(Clone)]
pub(crate) struct Api {
    /// The service of the daemon's own project. Handlers use that of their request: see
    /// `extract::ForRequest`.
    pub(crate) daemon: Service,
    pub(crate) life: Life,
    pub(crate) keys: Arc<Keys>,
    pub(crate) domains: Arc<Domains>,
    pub(crate) metrics: Option<PrometheusHandle>,
}

/// Signals for streams that outlive the request they began with.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The server accepts no new requests, and endless streams end.
    pub(crate) stop: CancellationToken,
    /// All connections that still exist are closed.
    pub(crate) cut: CancellationToken,
    /// The tasks that must end before the server ends.
    pub(crate) tasks: TaskTracker,
}
