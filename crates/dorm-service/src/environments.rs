//! Makes the sandboxes of environments, ends runs, and removes what is not needed any more.
//!
//! ```text
//! attempt ─► restore a snapshot ──────────────────────────────────────────► ready
//!        └─► turn of the workspace ─► snapshot found ─► restore it ───────► ready
//!                                 └─► set up ─► snapshot ─► restore it ───► ready
//! ```
//!
//! The sandbox that is handed out is restored from the snapshot of the setup, also the first time:
//! every caller gets the same, and what the setup knew of secrets ends with its sandbox. All that
//! an attempt makes is on record before it exists, so that the next daemon continues or undoes it.

mod attempt;
mod clone;
mod plan;
mod run;
mod setup;
mod spent;
mod upkeep;

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_lifecycle::EnvironmentId;
use dorm_lifecycle::environment::OnLeave;
use dorm_store::EnvironmentRecord;

use crate::error::{ServiceError, chain};
use crate::shared::Service;

/// The label of the sandboxes and snapshots of an environment; its value is the id.
pub(crate) const LABEL: &str = "dorm.environment";
/// The label of a snapshot with the commit of its code.
const COMMIT_LABEL: &str = "dorm.commit";
/// The delay before work is tried again after its records could not be read or written.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest sleep of the task that begins work.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Returns the labels of a snapshot of an environment.
fn labels_of(id: &EnvironmentId, commit: Option<&String>, also: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let commit = commit.map(|commit| (COMMIT_LABEL.to_owned(), commit.clone()));
    also.into_iter().chain([(LABEL.to_owned(), id.to_string())]).chain(commit).collect()
}

/// Carries out what is due for environments until the service stops, and continues what earlier
/// daemons began.
pub(crate) async fn keep_environments(service: Service) {
    let shared = service.shared.clone();
    loop {
        match shared.store.environments().await {
            Ok(mut records) => {
                // A setup in progress takes the turn of its workspace before those that wait.
                let waits =
                    |record: &EnvironmentRecord| record.attempt.as_ref().is_none_or(|attempt| attempt.setup.is_none());
                records.sort_by_key(|record| (waits(record), record.created));
                // A retired sandbox may not be suspended yet.
                let is_first = |record: &&EnvironmentRecord| !waits(record) || !record.retired.is_empty();
                for record in records.iter().filter(is_first) {
                    begin(&service, &record.id);
                }
                records.iter().for_each(|record| shared.environments.note(record));
                break;
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot read the environments; retrying");
                if shared.stops_within(AGAIN).await {
                    return;
                }
            }
        }
    }
    loop {
        let news = shared.environments.news.notified();
        let now = shared.now();
        let (due, next) = shared.environments.take_due(now);
        due.iter().for_each(|id| begin(&service, id));
        let wait = next.map_or(LOOK_AGAIN, |at| at.since(now).min(LOOK_AGAIN));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = news => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Begins the work that is due for an environment, unless that is in progress.
fn begin(service: &Service, id: &EnvironmentId) {
    let shared = &service.shared;
    if !shared.environments.begin(id) {
        return;
    }
    let (own, id) = (service.clone(), id.clone());
    shared.spawn(async move {
        let shared = own.shared.clone();
        if let Err(error) = own.work_on(&id).await
            && !shared.stopping.is_cancelled()
        {
            tracing::warn!(environment = %id, error = %chain(&error), "cannot work on an environment; retrying");
            shared.environments.postpone(&id, shared.now().after(AGAIN));
        }
        shared.environments.end(&id);
        shared.environments.changed();
    });
}

impl Service {
    /// Does what is due for an environment.
    async fn work_on(&self, id: &EnvironmentId) -> Result<(), ServiceError> {
        loop {
            let cancel = self.shared.environments.next_part(id);
            let Some(record) = self.shared.store.environment(id).await? else {
                self.shared.environments.forget(id);
                return Ok(());
            };
            let own = self.of_project(&record.project).of_part();
            if record.attempt.is_some() {
                own.carry_out_attempt(record, &cancel).await?;
            } else if record.removed {
                own.remove_environment_now(record).await?;
            } else if record.ending.is_some() {
                own.end_run(record).await?;
            } else {
                return own.tidy_environment(record).await;
            }
        }
    }
}

/// Whether an attempt of an earlier daemon is not continued: its callers are gone.
fn is_left(attempt: &dorm_store::Attempt) -> bool {
    attempt.cancel || attempt.on_leave == OnLeave::Cancel
}
