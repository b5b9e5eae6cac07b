//! The process-wide metrics recorder, which collects the counters of every crate.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Bounds of histograms in seconds, from half a millisecond to the limit of the longest operation.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// A handle for reading the recorder; `None` if another recorder was installed before.
pub(crate) fn handle() -> Option<PrometheusHandle> {
    let install = || {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS).ok()?;
        builder.install_recorder().ok()
    };
    HANDLE.get_or_init(install).clone()
}
