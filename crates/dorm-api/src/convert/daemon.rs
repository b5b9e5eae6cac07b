//! Maintenance of the daemon, and webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_api_types as wire;
use dorm_service::CollectorItem;
use dorm_storage::{Checked, Stored};
use dorm_store::{UnreadableRow, WebhookRecord};

use super::{Of, time};

impl Of<CollectorItem> for wire::CollectorItem {
    fn of(item: CollectorItem) -> Self {
        let CollectorItem { kind, id, bytes, verdict, why } = item;
        Self { kind: kind.as_str().to_owned(), id, bytes, verdict: verdict.as_str().to_owned(), why }
    }
}

impl Of<Stored> for wire::Stored {
    fn of(stored: Stored) -> Self {
        Self { kind: stored.kind().to_owned(), id: stored.id().to_owned() }
    }
}

impl Of<Checked> for wire::Verified {
    fn of(checked: Checked) -> Self {
        let Checked { stored, bytes, damaged } = checked;
        let verdict = if damaged.is_empty() { "sound" } else { "damaged" };
        let files = damaged.into_iter();
        let files =
            files.map(|damaged| wire::DamagedFile { file: damaged.file.display().to_string(), what: damaged.what });
        Self {
            kind: stored.kind().to_owned(),
            id: stored.id().to_owned(),
            verdict: verdict.to_owned(),
            bytes,
            files: files.collect(),
        }
    }
}

impl Of<UnreadableRow> for wire::QuarantinedRecord {
    fn of(row: UnreadableRow) -> Self {
        // The stored row may hold secrets, and is never shown.
        let UnreadableRow { kind, id, revision: _, project: _, name, what, raw: _ } = row;
        Self { kind: kind.as_str().to_owned(), id, name: name.map(|name| name.to_string()), reason: what }
    }
}

impl Of<WebhookRecord> for wire::Webhook {
    fn of(record: WebhookRecord) -> Self {
        Self {
            id: record.id.to_string(),
            url: record.url,
            kinds: record.kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
            created_at: time(record.created),
            delivered: record.delivered,
            secret: None,
        }
    }
}

/// The secret in the form in which the receiver configures it.
pub(crate) fn webhook_secret(record: &WebhookRecord) -> String {
    format!("whsec_{}", STANDARD.encode(record.secret))
}
