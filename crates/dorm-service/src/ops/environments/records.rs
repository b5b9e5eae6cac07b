//! The records of environments.

use dorm_lifecycle::environment::Key;
use dorm_lifecycle::{EnvironmentId, Variables};
use dorm_ports::SecretValue;
use dorm_store::{Change, EnvironmentRecord};

use crate::error::{EnvironmentProblem, ServiceError};
use crate::shared::{Service, Shared};

impl Service {
    /// Returns the environments of this project, in the order of their ids.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn environments(&self) -> Result<Vec<EnvironmentRecord>, ServiceError> {
        let mut all = self.shared.store.environments().await?;
        all.retain(|one| one.project == *self.project() && !one.removed);
        all.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        Ok(all.into_iter().map(|record| self.shown_environment(record)).collect())
    }

    /// Returns one environment, by its id or by the key that its caller has chosen.
    ///
    /// # Errors
    ///
    /// `Environment` if there is none.
    pub async fn environment(&self, named: &str) -> Result<EnvironmentRecord, ServiceError> {
        self.own_environment(named).await.map(|record| self.shown_environment(record))
    }

    pub(in crate::ops) async fn own_environment(&self, named: &str) -> Result<EnvironmentRecord, ServiceError> {
        let store = &self.shared.store;
        let mut found = match named.parse::<EnvironmentId>() {
            Ok(id) => store.environment(&id).await?.filter(|one| one.project == *self.project()),
            Err(_) => None,
        };
        if found.is_none() {
            found = store.environment_with(self.project(), &Key::Own(named.to_owned())).await?;
        }
        let found = found.filter(|one| !one.removed);
        found.ok_or_else(|| EnvironmentProblem::Missing(named.chars().take(100).collect()).into())
    }

    /// Returns a record with times as they are shown, and without what is only for the daemon.
    pub(super) fn shown_environment(&self, mut record: EnvironmentRecord) -> EnvironmentRecord {
        let clock = &self.shared.clock;
        record.created = clock.shown(record.created);
        for lease in &mut record.leases {
            lease.until = clock.shown(lease.until);
        }
        let attempts = record.attempt.iter_mut().chain(record.last.iter_mut().map(|end| &mut end.attempt));
        for attempt in attempts {
            attempt.token = None;
            attempt.began = clock.shown(attempt.began);
            for step in &mut attempt.steps {
                step.began = step.began.map(|at| clock.shown(at));
                step.ended = step.ended.map(|at| clock.shown(at));
            }
        }
        if let Some(end) = &mut record.last {
            end.ended = clock.shown(end.ended);
        }
        for retired in &mut record.retired {
            retired.at = clock.shown(retired.at);
        }
        record
    }
}

/// The name under which the token of a clone is encrypted.
const TOKEN: &str = "token of a clone";

impl Shared {
    /// Records an environment, and other changes at the same time. The caller may go away: what the
    /// record says is acted upon even so, and what is held lasts until it is written.
    pub(super) async fn write_environment(
        self: &std::sync::Arc<Self>,
        record: EnvironmentRecord,
        others: Change,
        held: impl Send + 'static,
    ) -> Result<(), ServiceError> {
        let own = self.clone();
        let write = async move {
            let _held = held;
            let change = Change { environments: vec![record.clone()], ..others };
            let written = own.commit_known(change).await;
            if written.is_ok() {
                own.environments.note(&record);
            }
            own.environments.changed();
            written.map(drop).map_err(ServiceError::from)
        };
        self.finish(write).await
    }

    /// Changes the record of an environment; `None` if there is none.
    pub(crate) async fn change_environment(
        self: &std::sync::Arc<Self>,
        id: &EnvironmentId,
        change: impl FnOnce(&mut EnvironmentRecord),
    ) -> Result<Option<EnvironmentRecord>, ServiceError> {
        self.change_environment_with(id, Change::default(), change).await
    }

    /// Changes the record of an environment, and other records at the same time; `None` if there is
    /// none.
    pub(crate) async fn change_environment_with(
        self: &std::sync::Arc<Self>,
        id: &EnvironmentId,
        others: Change,
        change: impl FnOnce(&mut EnvironmentRecord),
    ) -> Result<Option<EnvironmentRecord>, ServiceError> {
        let turn = self.environments.turns.of(id).lock_owned().await;
        let Some(mut record) = self.store.environment(id).await? else { return Ok(None) };
        let before = record.clone();
        change(&mut record);
        if record != before {
            self.write_environment(record.clone(), others, turn).await?;
        }
        Ok(Some(record))
    }

    pub(super) fn seal_token(&self, token: &SecretValue) -> String {
        let token = Variables([(TOKEN.to_owned(), token.expose().to_owned())].into());
        self.seal_secrets(token).0.remove(TOKEN).unwrap_or_default()
    }

    /// Returns the token of a clone from its record.
    pub(crate) fn open_token(&self, sealed: &str) -> Result<SecretValue, crate::SealError> {
        self.open_secret(TOKEN, sealed).map(SecretValue::new)
    }
}
