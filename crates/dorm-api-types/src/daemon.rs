//! Maintenance of the daemon, and webhooks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::text::Time;

/// Certificate authority of the daemon's own hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// Its certificate, in PEM.
    pub certificate: String,
    /// SHA-256 of the certificate in DER, as hexadecimal digits.
    pub sha256: String,
    /// Domains that its certificates can be for, with their subdomains.
    pub domains: Vec<String>,
}

/// Kinds of garbage to collect in addition to files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct CollectOptions {
    /// End the runs of this data directory that no record names. Default: false.
    pub runs: bool,
}

/// An object on disk or a run, and what garbage collection does with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CollectorItem {
    /// `image`, `saved_state` (the saved state of a sleep image or snapshot), `draft` (an
    /// incomplete saved state) or `run` (a run on the host that no record of this data directory
    /// names).
    pub kind: String,
    /// Name of the object.
    pub id: String,
    /// Size of the object in bytes; 0 if it is not known.
    pub bytes: u64,
    /// `kept`, `freed`, or `unknown` if no record names the object. Unknown objects are never
    /// deleted.
    pub verdict: String,
    /// The reasons, one entry for each record that refers to the object.
    pub why: Vec<String>,
}

/// Objects on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CollectorItemList {
    /// The objects.
    pub items: Vec<CollectorItem>,
}

/// An object on disk that can be verified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// `image`, `image_layer` (part of images, read only by imports) or `saved_state` (the saved
    /// state of a sleep image or snapshot).
    pub kind: String,
    /// Digest or ID of the object.
    pub id: String,
}

/// The objects on disk that can be verified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoredList {
    /// The objects.
    pub stored: Vec<Stored>,
}

/// A file whose contents are not what was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedFile {
    /// Path relative to the directory of the object.
    pub file: String,
    /// The problem with the file, as a phrase with the file as its subject.
    pub what: String,
}

/// The result of verifying an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    /// Kind of the object, as in `Stored`.
    pub kind: String,
    /// Digest or ID of the object.
    pub id: String,
    /// `sound`, `damaged`, or `gone` if the object was deleted in the meantime.
    pub verdict: String,
    /// Total size of its files in bytes, as far as it is known.
    pub bytes: u64,
    /// Its damaged files: at most 20 of an image, the first one of any other object.
    pub files: Vec<DamagedFile>,
}

/// A record that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantinedRecord {
    /// `sandbox`, `operation`, `snapshot`, `discard`, `webhook`, `pool`, `build`, `template`,
    /// `environment`, `project`, `key`, `request`, `volume` or `event`.
    pub kind: String,
    /// ID of the record.
    pub id: String,
    /// The name that the record reserves, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why the record cannot be read.
    pub reason: String,
}

/// A saved state or image that cannot be read or is damaged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantinedFile {
    /// Kind of the object, with its ID or digest.
    pub what: String,
    /// Why it cannot be read, or which file is damaged.
    pub reason: String,
}

/// Everything that cannot be read. Quarantined objects, and everything they may depend on, are
/// never deleted. `dorm repair` rebuilds records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Quarantine {
    /// Unreadable records.
    pub records: Vec<QuarantinedRecord>,
    /// Unreadable or damaged saved states and images.
    pub files: Vec<QuarantinedFile>,
}

/// Creates a webhook.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// URL that receives the events. It must start with `http://`; use a relay for a receiver that
    /// requires TLS.
    pub url: String,
    /// Kinds of events to send. Empty for all kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Start after the event with this number. Default: only events that happen from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// A webhook: events are sent to its URL.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// ID of the webhook.
    pub id: String,
    /// URL that receives the events.
    pub url: String,
    /// Kinds of events that are sent. Empty for all kinds.
    pub kinds: Vec<String>,
    /// When the webhook was created.
    pub created_at: Time,
    /// Number of the last event that was delivered or skipped.
    pub delivered: u64,
    /// Signing secret in the format of Standard Webhooks. Only present in the response that creates
    /// the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A page of webhooks, ordered by id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// The webhooks.
    pub webhooks: Vec<Webhook>,
    /// Cursor: `after` of the next page. Null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Resends events to a webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayWebhook {
    /// Resend all events after the one with this number. 0 resends all of them.
    pub after: u64,
}
