//! Sandbox pools.

use dorm_api_types as wire;
use dorm_service::PoolView;
use dorm_store::PoolSource;

use super::{Of, time};

impl Of<PoolView> for wire::Pool {
    fn of(view: PoolView) -> Self {
        let PoolView { pool, waiting, claimed, problem } = view;
        let (image, snapshot) = match pool.source {
            PoolSource::Image(image) => (Some(image.to_string()), None),
            PoolSource::Snapshot(snapshot) => (None, Some(snapshot.to_string())),
        };
        Self {
            id: pool.id.to_string(),
            name: pool.name.to_string(),
            project: pool.project.to_string(),
            image,
            snapshot,
            ready: pool.ready,
            most: pool.most,
            waiting,
            claimed,
            problem,
            labels: pool.labels,
            created_at: time(pool.created),
        }
    }
}
