//! The rows of webhooks.

use dorm_lifecycle::{EventKind, ProjectId, WebhookId};
use serde::{Deserialize, Serialize};

use crate::codec::word::{Millis, Text, Word};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::codec) struct WebhookRow {
    pub(super) v: u64,
    pub(super) id: Text<WebhookId>,
    pub(super) project: Text<ProjectId>,
    pub(super) url: String,
    pub(super) secret: [u8; 32],
    pub(super) kinds: Vec<Word<EventKind>>,
    pub(super) created: Millis,
    pub(super) delivered: u64,
}
