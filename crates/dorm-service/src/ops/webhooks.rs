//! Webhooks: the receivers of events. Sending them is the task of the API: see `dorm-api`.

use dorm_lifecycle::{EventKind, WebhookId};
use dorm_ports::Destinations;
use dorm_store::{Change, EventFilter, Made, WebhookRecord};
use tokio::sync::watch;

use crate::error::ServiceError;
use crate::shared::Service;

impl Service {
    /// Returns the addresses that webhooks may be sent to.
    pub fn webhook_destinations(&self) -> &Destinations {
        &self.shared.settings.webhooks
    }

    /// Returns the webhooks of every project, for the task that sends events.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn webhooks_of_all_projects(&self) -> Result<Vec<WebhookRecord>, ServiceError> {
        Ok(self.shared.store.webhooks().await?)
    }

    /// Returns every webhook.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn webhooks(&self) -> Result<Vec<WebhookRecord>, ServiceError> {
        let webhooks = self.shared.store.webhooks().await?;
        let own = webhooks.into_iter().filter(|webhook| webhook.project == *self.project());
        Ok(own.map(|webhook| self.shared.shown_webhook(webhook)).collect())
    }

    /// Returns one webhook.
    ///
    /// # Errors
    ///
    /// `NoWebhook`.
    pub async fn webhook(&self, id: &WebhookId) -> Result<WebhookRecord, ServiceError> {
        Ok(self.shared.shown_webhook(self.webhook_record(id).await?))
    }

    async fn webhook_record(&self, id: &WebhookId) -> Result<WebhookRecord, ServiceError> {
        let mut webhooks = self.shared.store.webhooks().await?.into_iter();
        let found = webhooks.find(|webhook| webhook.id == *id && webhook.project == *self.project());
        found.ok_or_else(|| ServiceError::NoWebhook(id.clone()))
    }

    /// Creates a webhook, with a new secret. It receives events from now on, or those after the
    /// event `after`.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn add_webhook(
        &self,
        url: String,
        kinds: Vec<EventKind>,
        after: Option<u64>,
    ) -> Result<WebhookRecord, ServiceError> {
        if let Some(Made::Webhook(earlier)) = self.earlier() {
            return match self.webhook(earlier).await {
                Err(ServiceError::NoWebhook(_)) => Err(ServiceError::made_is_gone("webhook", earlier)),
                other => other,
            };
        }
        let project = Some(self.project().clone());
        let newest = EventFilter { project, newest: 1, ..EventFilter::default() };
        let delivered = match after {
            Some(after) => after,
            None => self.events(&newest).await?.last().map_or(0, |event| event.number),
        };
        let webhook = WebhookRecord {
            id: self.shared.ids().webhook(),
            project: self.project().clone(),
            url,
            secret: self.shared.ids().random(),
            kinds,
            created: self.shared.now(),
            delivered,
        };
        let requests = self.made(Made::Webhook(webhook.id.clone()));
        let change = Change { webhooks: vec![webhook.clone()], requests, ..Change::default() };
        self.to_the_end(|own| async move { own.write_webhooks(change).await }).await?;
        Ok(self.shared.shown_webhook(webhook))
    }

    /// Sends every event after the event `after` to a webhook again.
    ///
    /// # Errors
    ///
    /// `NoWebhook`.
    pub async fn replay_webhook(&self, id: &WebhookId, after: u64) -> Result<WebhookRecord, ServiceError> {
        let id = id.clone();
        let replay = |own: Self| async move {
            let _turn = own.shared.webhooks.lock().await;
            let webhook = WebhookRecord { delivered: after, ..own.webhook_record(&id).await? };
            own.write_webhooks(Change { webhooks: vec![webhook.clone()], ..Change::default() }).await?;
            Ok(own.shared.shown_webhook(webhook))
        };
        self.to_the_end(replay).await
    }

    /// Records that a webhook has advanced from the event `from` to the event `to`. Does nothing if
    /// its position is no longer `from`: then a replay was requested.
    ///
    /// # Errors
    ///
    /// `NoWebhook` if it was removed meanwhile.
    pub async fn webhook_delivered(&self, id: &WebhookId, from: u64, to: u64) -> Result<(), ServiceError> {
        let _turn = self.shared.webhooks.lock().await;
        let webhook = self.webhook_record(id).await?;
        if webhook.delivered == from {
            let webhook = WebhookRecord { delivered: to, ..webhook };
            self.shared.commit_known(Change { webhooks: vec![webhook], ..Change::default() }).await?;
        }
        Ok(())
    }

    /// Removes a webhook. Removing one that does not exist is a success.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn remove_webhook(&self, id: &WebhookId) -> Result<(), ServiceError> {
        let id = id.clone();
        let remove = |own: Self| async move {
            let _turn = own.shared.webhooks.lock().await;
            match own.webhook_record(&id).await {
                Ok(_) => {}
                Err(ServiceError::NoWebhook(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
            own.write_webhooks(Change { removed_webhooks: vec![id], ..Change::default() }).await
        };
        self.to_the_end(remove).await
    }

    /// Returns a counter of changes to webhooks, as it changes.
    pub fn webhook_news(&self) -> watch::Receiver<u64> {
        self.shared.webhook_news.subscribe()
    }

    async fn write_webhooks(&self, change: Change) -> Result<(), ServiceError> {
        self.shared.commit_known(change).await?;
        self.shared.webhook_news.send_modify(|count| *count += 1);
        Ok(())
    }
}
