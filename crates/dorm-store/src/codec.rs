//! Records as text: JSON that carries its version, written and read by every store that keeps text.
//!
//! The text of every version is readable for ever; `goldens/` holds one of each. Reading is strict: a field that
//! is unknown or not there, a word nobody knows and a later version are errors, since what a record means must not be
//! guessed. Revisions and numbers are not part of the text: they belong to the store.

mod v1;
mod word;

use dorm_lifecycle::Sandbox;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{ApiKeyRecord, ClockNote, NewEvent, OperationRecord, SnapshotRecord, VolumeRecord, WebhookRecord};

/// The version in which sandboxes are written.
pub const SANDBOX: u64 = 1;
/// The version in which operations are written.
pub const OPERATION: u64 = 1;
/// The version in which snapshots are written.
pub const SNAPSHOT: u64 = 1;
/// The version in which events are written.
pub const EVENT: u64 = 1;
/// The version in which webhooks are written.
pub const WEBHOOK: u64 = 1;
/// The version in which API keys are written.
pub const API_KEY: u64 = 1;
/// The version in which volumes are written.
pub const VOLUME: u64 = 1;
/// The version in which the note of the clocks is written.
pub const CLOCK: u64 = 1;

/// Why a text is not a record, or a record cannot be a text.
#[derive(Debug, Error)]
pub enum CodecError {
    /// Not a JSON object with a version.
    #[error("the text is not a JSON object with a version 'v'")]
    Unversioned(#[source] serde_json::Error),
    /// A version that this program does not know.
    #[error(
        "the text is of version {found}, but this dorm reads versions up to {newest}: use the newer dorm that wrote it"
    )]
    Version {
        /// Its version.
        found: u64,
        /// The newest that is read.
        newest: u64,
    },
    /// A field is unknown, not there, or not what the version allows.
    #[error("the text is not a record of version {version}")]
    Shape {
        /// Its version.
        version: u64,
        /// The field and the place.
        #[source]
        source: serde_json::Error,
    },
    /// The record could not be written as text.
    #[error("the record cannot be written as text")]
    Unwritable(#[source] serde_json::Error),
}

/// A sandbox as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no sandbox is known to cause.
pub fn encode_sandbox(sandbox: &Sandbox) -> Result<String, CodecError> {
    encode::<v1::SandboxRow>(sandbox.into())
}

/// The sandbox of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_sandbox(text: &str) -> Result<Sandbox, CodecError> {
    match version(text)? {
        SANDBOX => decode::<v1::SandboxRow>(text, SANDBOX).map(Sandbox::from),
        found => Err(CodecError::Version { found, newest: SANDBOX }),
    }
}

/// An operation as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no operation is known to cause.
pub fn encode_operation(operation: &OperationRecord) -> Result<String, CodecError> {
    encode::<v1::OperationRow>(operation.into())
}

/// The operation of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_operation(text: &str) -> Result<OperationRecord, CodecError> {
    match version(text)? {
        OPERATION => decode::<v1::OperationRow>(text, OPERATION).map(OperationRecord::from),
        found => Err(CodecError::Version { found, newest: OPERATION }),
    }
}

/// A snapshot as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no snapshot is known to cause.
pub fn encode_snapshot(snapshot: &SnapshotRecord) -> Result<String, CodecError> {
    encode::<v1::SnapshotRow>(snapshot.into())
}

/// The snapshot of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_snapshot(text: &str) -> Result<SnapshotRecord, CodecError> {
    match version(text)? {
        SNAPSHOT => decode::<v1::SnapshotRow>(text, SNAPSHOT).map(SnapshotRecord::from),
        found => Err(CodecError::Version { found, newest: SNAPSHOT }),
    }
}

/// An event as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no event is known to cause.
pub fn encode_event(event: &NewEvent) -> Result<String, CodecError> {
    encode::<v1::EventRow>(event.into())
}

/// The event of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_event(text: &str) -> Result<NewEvent, CodecError> {
    match version(text)? {
        EVENT => decode::<v1::EventRow>(text, EVENT).map(NewEvent::from),
        found => Err(CodecError::Version { found, newest: EVENT }),
    }
}

/// An API key as text. It holds the key's hash, not the key.
///
/// # Errors
/// [`CodecError::Unwritable`], which no API key is known to cause.
pub fn encode_api_key(key: &ApiKeyRecord) -> Result<String, CodecError> {
    encode::<v1::ApiKeyRow>(key.into())
}

/// The API key of a text.
///
/// # Errors
/// A [`CodecError`] that says what is wrong with the text.
pub fn decode_api_key(text: &str) -> Result<ApiKeyRecord, CodecError> {
    match version(text)? {
        API_KEY => decode::<v1::ApiKeyRow>(text, API_KEY).map(ApiKeyRecord::from),
        found => Err(CodecError::Version { found, newest: API_KEY }),
    }
}

/// A webhook as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no webhook is known to cause.
pub fn encode_webhook(webhook: &WebhookRecord) -> Result<String, CodecError> {
    encode::<v1::WebhookRow>(webhook.into())
}

/// The webhook of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_webhook(text: &str) -> Result<WebhookRecord, CodecError> {
    match version(text)? {
        WEBHOOK => decode::<v1::WebhookRow>(text, WEBHOOK).map(WebhookRecord::from),
        found => Err(CodecError::Version { found, newest: WEBHOOK }),
    }
}

/// A volume as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no volume is known to cause.
pub fn encode_volume(volume: &VolumeRecord) -> Result<String, CodecError> {
    encode::<v1::VolumeRow>(volume.into())
}

/// The volume of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_volume(text: &str) -> Result<VolumeRecord, CodecError> {
    match version(text)? {
        VOLUME => decode::<v1::VolumeRow>(text, VOLUME).map(VolumeRecord::from),
        found => Err(CodecError::Version { found, newest: VOLUME }),
    }
}

/// The note of the clocks as text.
///
/// # Errors
/// [`CodecError::Unwritable`], which no note is known to cause.
pub fn encode_clock(note: &ClockNote) -> Result<String, CodecError> {
    encode::<v1::ClockRow>(note.into())
}

/// The note of the clocks of a text.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_clock(text: &str) -> Result<ClockNote, CodecError> {
    match version(text)? {
        CLOCK => decode::<v1::ClockRow>(text, CLOCK).map(ClockNote::from),
        found => Err(CodecError::Version { found, newest: CLOCK }),
    }
}

fn encode<Row: Serialize>(row: Row) -> Result<String, CodecError> {
    serde_json::to_string(&row).map_err(CodecError::Unwritable)
}

/// What a text says it is.
fn version(text: &str) -> Result<u64, CodecError> {
    #[derive(Deserialize)]
    struct Header {
        v: u64,
    }
    serde_json::from_str(text).map(|Header { v }| v).map_err(CodecError::Unversioned)
}

fn decode<Row: DeserializeOwned>(text: &str, version: u64) -> Result<Row, CodecError> {
    serde_json::from_str(text).map_err(|source| CodecError::Shape { version, source })
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod properties;
