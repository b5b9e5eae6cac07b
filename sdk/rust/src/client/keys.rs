//! API keys and webhooks.

use dorm_api_types as wire;
use reqwest::Method;

use super::{Client, ClientError, segment};

impl Client {
    /// Creates an API key. The key itself is returned only here.
    pub async fn create_key(&self, asked: &wire::CreateKey) -> Result<wire::CreatedKey, ClientError> {
        self.make("/keys", asked).await
    }

    /// Returns all API keys, without the keys themselves.
    pub async fn keys(&self) -> Result<Vec<wire::Key>, ClientError> {
        self.pages("/keys", &[], |page: wire::KeyList| (page.keys, page.next)).await
    }

    /// Deletes an API key, by its id.
    pub async fn delete_key(&self, key: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/keys/{}", segment(key)))).await
    }

    /// Creates a webhook. Its secret is returned only here.
    pub async fn create_webhook(&self, asked: &wire::CreateWebhook) -> Result<wire::Webhook, ClientError> {
        self.make("/webhooks", asked).await
    }

    /// Returns all webhooks.
    pub async fn webhooks(&self) -> Result<Vec<wire::Webhook>, ClientError> {
        self.pages("/webhooks", &[], |page: wire::WebhookList| (page.webhooks, page.next)).await
    }

    /// Delivers to a webhook again every event after this number.
    pub async fn replay_webhook(&self, webhook: &str, after: u64) -> Result<wire::Webhook, ClientError> {
        self.post(&format!("/webhooks/{}/replay", segment(webhook)), &wire::ReplayWebhook { after }).await
    }

    /// Deletes a webhook.
    pub async fn delete_webhook(&self, webhook: &str) -> Result<(), ClientError> {
        self.tell(self.request(Method::DELETE, &format!("/webhooks/{}", segment(webhook)))).await
    }
}
