//! Stores the state of the clocks, and shows recorded times to callers.
//!
//! Recorded times are of the service clock. Callers see the wall clock: every answer of the service
//! that contains times passes through here, and nothing that is shown is recorded again.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::Timestamp;
use dorm_ports::Clock as _;
use dorm_store::{Change, ClockNote, EventFilter, StoreError};

use crate::error::{ServiceError, chain};
use crate::report::RecoveryReport;
use crate::service_clock::{HOLD, ServiceClock};
use crate::shared::{Parts, Shared};

/// The interval between two reads of the wall clock while nothing happens.
const LOOK: Duration = Duration::from_secs(5);
/// The interval between two stores of the clocks while the wall clock is not adjusted.
const NOTE: Duration = Duration::from_secs(300);

/// Returns the clock, which continues from what the previous daemon has stored.
pub(crate) async fn begin(parts: &Parts, report: &mut RecoveryReport) -> Result<Arc<ServiceClock>, ServiceError> {
    let note = match parts.store.clock().await {
        Err(error @ StoreError::Unreadable { .. }) => {
            let line = format!("{}; nothing is deleted because of its age for an hour", chain(&error));
            tracing::warn!("{line}");
            report.lines.push(line);
            Some(unknown(parts))
        }
        note => note?,
    };
    let newest = parts.store.events(&EventFilter { newest: 1, ..EventFilter::default() }).await?;
    let newest = newest.last().map(|record| record.event.at);
    let (clock, doubt) = ServiceClock::begin(parts.clock.clone(), note, newest);
    if let Some(doubt) = doubt {
        tracing::warn!("{doubt}");
        report.lines.push(doubt);
    }
    Ok(Arc::new(clock))
}

/// Returns the assumed state of the clocks when the stored one cannot be read: it is created anew.
fn unknown(parts: &Parts) -> ClockNote {
    let held_until = parts.clock.now().after(HOLD);
    ClockNote { seen: Timestamp::default(), steady: Duration::ZERO, boot: None, periods: Vec::new(), held_until }
}

/// Reads the clocks and stores their state until the service stops.
pub(crate) async fn keep_time(shared: Arc<Shared>) {
    let mut noted = None;
    loop {
        let now = shared.clock.steady();
        let is_due = noted.is_none_or(|noted| now.saturating_sub(noted) >= NOTE);
        if (is_due || shared.clock.is_unnoted()) && note(&shared).await {
            noted = Some(now);
        }
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => break,
            () = shared.clock.jumped() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    note(&shared).await;
}

async fn note(shared: &Arc<Shared>) -> bool {
    let change = Change { clock: Some(shared.clock.note()), ..Change::default() };
    match shared.commit(change).await {
        Ok(_) => true,
        Err(error) => {
            shared.clock.note_again();
            tracing::warn!(error = %chain(&error), "cannot store the state of the clocks; retrying");
            false
        }
    }
}
