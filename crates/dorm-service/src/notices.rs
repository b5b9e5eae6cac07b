//! Passes notices of the engine on to the actors concerned.

use std::sync::Arc;

use dorm_engine::Notice;

use crate::messages::Message;
use crate::ops::runs;
use crate::shared::Shared;

/// Listens until the service stops.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let mut notices = shared.engine.notices();
    loop {
        let notice = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            notice = notices.recv() => notice,
        };
        match notice {
            Some(Notice::Ended { run, reason }) => {
                let sandbox = run.sandbox.clone();
                shared.tell(&sandbox, Message::RunEnded { run, reason });
            }
            Some(Notice::MemoryHigh { run }) => {
                if shared.left_alone.is_own(&run) {
                    runs::relieve_pressure_unrecorded(&shared, &run).await;
                    continue;
                }
                let sandbox = run.sandbox.clone();
                shared.tell(&sandbox, Message::MemoryHigh { run });
            }
            Some(Notice::MemoryReleased { run, memory_bytes }) => {
                shared.parking.shrink(&run.sandbox, memory_bytes);
            }
            None => return,
        }
    }
}
