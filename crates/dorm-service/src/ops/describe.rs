//! Finding and describing sandboxes.

use std::collections::BTreeMap;
use std::ops::Bound;

use dorm_lifecycle::{Command, Input, Name, Outcome, SandboxId, StateName, Timestamp, step};
use dorm_store::{SandboxFilter, SandboxOrder, SandboxRecord};

use crate::error::ServiceError;
use crate::shared::Service;
use crate::view::{Changed, Residence, SandboxView};

/// Returns the records that match a filter, as a store would list them.
fn listed(records: &BTreeMap<SandboxId, SandboxRecord>, filter: &SandboxFilter) -> Vec<SandboxRecord> {
    if filter.order != SandboxOrder::Id {
        return filter.listed(records.values());
    }
    let from = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let found = records.range((from, Bound::Unbounded)).map(|(_, record)| record);
    let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
    found.filter(|record| filter.matches(record)).take(limit).cloned().collect()
}

/// A page of sandboxes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxPage {
    /// The sandboxes.
    pub sandboxes: Vec<SandboxView>,
    /// [`SandboxFilter::after_moment`] and [`SandboxFilter::after`] for the next page; `None` on
    /// the last one.
    pub next: Option<(Timestamp, SandboxId)>,
}

impl Service {
    /// Returns the sandbox with that id or name. A name refers to the sandbox that is not
    /// terminated.
    ///
    /// # Errors
    ///
    /// `NoSandbox`; `Store` if its record cannot be read.
    pub async fn find(&self, reference: &str) -> Result<SandboxId, ServiceError> {
        if let Ok(id) = reference.parse::<SandboxId>() {
            match self.record(&id).await {
                Ok(_) => return Ok(id),
                Err(ServiceError::NoSandbox(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let missing = || ServiceError::NoSandbox(reference.to_owned());
        let name: Name = reference.parse().map_err(|_| missing())?;
        let record = self.shared.store.named(self.project(), &name).await?.ok_or_else(missing)?;
        Ok(record.sandbox.id)
    }

    /// Returns a terminated sandbox that had that name.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn find_terminated(&self, name: &str) -> Result<Option<SandboxId>, ServiceError> {
        let Ok(name) = name.parse() else { return Ok(None) };
        let project = Some(self.project().clone());
        let filter = SandboxFilter { project, name: Some(name), limit: 1, ..SandboxFilter::default() };
        Ok(self.shared.store.sandboxes(&filter).await?.pop().map(|record| record.sandbox.id))
    }

    /// Returns a sandbox, terminated or not.
    ///
    /// # Errors
    ///
    /// `NoSandbox`.
    pub async fn describe(&self, id: &SandboxId) -> Result<SandboxView, ServiceError> {
        let record = self.record(id).await?;
        Ok(self.shared.view(&record))
    }

    /// Returns the ids of all sandboxes that are not terminated, of every project.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn all_living(&self) -> Result<Vec<SandboxId>, ServiceError> {
        Ok(self.shared.of_living(|sandbox| Some(sandbox.id.clone())).await?)
    }

    /// Returns the sandboxes that match a filter, in its order.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn list(&self, filter: &SandboxFilter) -> Result<Vec<SandboxView>, ServiceError> {
        Ok(self.matching(filter).await?.iter().map(|record| self.shared.view(record)).collect())
    }

    /// Returns the sandboxes of this project that match a filter, and the cursor of the next page.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn page(&self, filter: &SandboxFilter) -> Result<SandboxPage, ServiceError> {
        let project = Some(self.project().clone());
        let wanted = SandboxFilter { project, limit: filter.limit.saturating_add(1), ..filter.clone() };
        let mut records = self.matching(&wanted).await?;
        let more = records.len() > filter.limit;
        records.truncate(filter.limit);
        let cursor = |last: &SandboxRecord| (filter.order.moment(&last.sandbox), last.sandbox.id.clone());
        let next = records.last().filter(|_| more).map(cursor);
        Ok(SandboxPage { sandboxes: records.iter().map(|record| self.shared.view(record)).collect(), next })
    }

    async fn matching(&self, filter: &SandboxFilter) -> Result<Vec<SandboxRecord>, ServiceError> {
        let shared = &self.shared;
        let is_living = !filter.states.is_empty() && !filter.states.contains(&StateName::Terminated);
        Ok(match is_living {
            true => shared.living.look(&*shared.store, |records| listed(records, filter)).await?,
            false => shared.store.sandboxes(filter).await?,
        })
    }

    /// Returns what a sandbox uses on this host now; nothing for one that is on disk only.
    ///
    /// # Errors
    ///
    /// `NoSandbox`; fails if the engine cannot tell.
    pub async fn usage(&self, id: &SandboxId) -> Result<dorm_engine::Usage, ServiceError> {
        let view = self.describe(id).await?;
        match view.residence {
            Residence::Running | Residence::Parked => match self.shared.engine.usage(&view.sandbox.run_id()).await {
                Err(dorm_engine::EngineError::NoRun(_)) => Ok(dorm_engine::Usage::default()),
                other => Ok(other?),
            },
            Residence::Evicted | Residence::None => Ok(dorm_engine::Usage::default()),
        }
    }

    pub(crate) async fn record(&self, id: &SandboxId) -> Result<SandboxRecord, ServiceError> {
        let record = self.shared.store.sandbox(id).await?;
        let own = record.filter(|record| record.sandbox.project == *self.project());
        own.ok_or_else(|| ServiceError::NoSandbox(id.to_string()))
    }

    /// Returns what a command leads to for a terminated sandbox, which has no actor.
    pub(crate) async fn command_to_the_dead(
        &self,
        id: &SandboxId,
        command: &Command,
    ) -> Result<SandboxView, ServiceError> {
        let record = self.record(id).await?;
        if let Some(asked) = self.if_revision.filter(|asked| *asked != record.revision) {
            return Err(ServiceError::RevisionChanged { sandbox: id.clone(), asked, now: record.revision });
        }
        match step(&record.sandbox, &Input::Command(command.clone()), &self.shared.context()) {
            Ok(made) if made.outcome == Outcome::Already => {
                Ok(SandboxView { changed: Some(Changed::No), ..self.shared.view(&record) })
            }
            // A sandbox that is not terminated has no actor only while the daemon stops.
            Ok(_) => Err(ServiceError::Stopping),
            Err(denied) => Err(ServiceError::Denied { operation: "change", sandbox: id.clone(), denied }),
        }
    }
}
