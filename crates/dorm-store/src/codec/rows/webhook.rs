//! The rows of webhooks.

use dorm_lifecycle::{EventKind, ProjectId, WebhookId};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text, Word};
use crate::{WebhookRecord, codec};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct WebhookRow {
    v: u64,
    id: Text<WebhookId>,
    project: Text<ProjectId>,
    url: String,
    secret: [u8; 32],
    kinds: Vec<Word<EventKind>>,
    created: Millis,
    delivered: u64,
}

impl From<&WebhookRecord> for WebhookRow {
    fn from(record: &WebhookRecord) -> Self {
        let WebhookRecord { id, project, url, secret, kinds, created, delivered } = record;
        Self {
            v: codec::WEBHOOK,
            id: Text(id.clone()),
            project: Text(project.clone()),
            url: url.clone(),
            secret: *secret,
            kinds: kinds.iter().map(|kind| Word(*kind)).collect(),
            created: Millis(*created),
            delivered: *delivered,
        }
    }
}

impl From<WebhookRow> for WebhookRecord {
    fn from(row: WebhookRow) -> Self {
        Self {
            id: row.id.0,
            project: row.project.0,
            url: row.url,
            secret: row.secret,
            kinds: row.kinds.into_iter().map(|kind| kind.0).collect(),
            created: row.created.0,
            delivered: row.delivered,
        }
    }
}
