//! The daemon's own affairs: what is on its disk, and where it sends events.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::text::Time;

/// What is collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct CollectOptions {
    /// End the runs of this data directory that no record names.
    pub runs: bool,
}

/// A thing on the disk, or a run without a record, and what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Artefact {
    /// `image`, `capture` (a sleep image or the content of a snapshot), `draft` (a capture that is not whole) or `run` (a
    /// run on the host that no record of this data directory names).
    pub kind: String,
    /// Its name.
    pub id: String,
    /// Its size; 0 where that is not known.
    pub bytes: u64,
    /// `kept`, `freed`, or `unknown`: no record knows it, and it is left alone.
    pub fate: String,
    /// Why, one line for each record that says so.
    pub why: Vec<String>,
}

/// What is on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ArtefactList {
    /// The things.
    pub artefacts: Vec<Artefact>,
}

/// One thing on the disk that can be compared with what was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// `image`, `image_layer` (what images are made of; only imports read it) or `capture` (a sleep image or the content of
    /// a snapshot).
    pub kind: String,
    /// Its digest or id.
    pub id: String,
}

/// What is on the disk and can be compared with what was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoredList {
    /// The things.
    pub stored: Vec<Stored>,
}

/// A file that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedFile {
    /// Which, relative to the directory of what it is part of.
    pub file: String,
    /// What is wrong with it, a phrase whose subject it is.
    pub what: String,
}

/// What was found of one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    /// What kind of thing it is, as in `Stored`.
    pub kind: String,
    /// Its digest or id.
    pub id: String,
    /// `sound`, `damaged`, or `gone`: it was removed meanwhile.
    pub verdict: String,
    /// How long its files are together, as far as that is known.
    pub bytes: u64,
    /// Its damaged files, 20 at most of an image, and the first one of anything else.
    pub files: Vec<DamagedFile>,
}

/// A record that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantinedRecord {
    /// `sandbox`, `operation`, `snapshot`, `discard`, `webhook` or `volume`.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// The name that it keeps others from taking, if that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why it cannot be read.
    pub reason: String,
}

/// A saved state or an image whose description cannot be read, or that was found damaged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantinedFile {
    /// What it is, with its id or digest.
    pub what: String,
    /// Why it cannot be read, or which file is damaged.
    pub reason: String,
}

/// What cannot be read. It is left as it is, with everything that it may need; `dorm repair` rebuilds records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Quarantine {
    /// Records.
    pub records: Vec<QuarantinedRecord>,
    /// Saved states and images.
    pub files: Vec<QuarantinedFile>,
}

/// Asks for a webhook.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// Where events are sent to: an `http://` address. Put a relay before what only speaks TLS.
    pub url: String,
    /// Which kinds of events; all of them when it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Begin after this event. Default: with what happens next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// Where events are sent to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// Where to.
    pub url: String,
    /// Which kinds; empty for all.
    pub kinds: Vec<String>,
    /// When it was made.
    pub created_at: Time,
    /// The last event that was delivered or passed over.
    pub delivered: u64,
    /// What signs the requests, as the Standard Webhooks write it. Only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Every webhook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// The webhooks.
    pub webhooks: Vec<Webhook>,
}

/// Asks for events to be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayWebhook {
    /// Those after this one; 0 for all.
    pub after: u64,
}
