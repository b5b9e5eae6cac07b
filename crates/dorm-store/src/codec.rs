//! Records as text: JSON that carries its version, written and read by every store that keeps text.
//!
//! The text of a released version is readable for ever; `goldens/` holds one of each. Reading is strict: a field that
//! is unknown or not there, a word nobody knows and a later version are errors, since what a record means must not be
//! guessed. Revisions and numbers are not part of the text: they belong to the store.

mod convert;
mod v1;
mod word;

use dorm_lifecycle::Sandbox;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{NewEvent, OperationRecord, SnapshotRecord};

/// The version that is written.
pub const VERSION: u64 = 1;

/// Why a text is not a record, or a record cannot be a text.
#[derive(Debug, Error)]
pub enum CodecError {
    /// Not a JSON object with a version.
    #[error("the text is not a JSON object with a version 'v'")]
    Unversioned(#[source] serde_json::Error),
    /// A version that this program does not know.
    #[error("the text is of version {found}, but this dorm reads version {VERSION}: use the newer dorm that wrote it")]
    Version {
        /// Its version.
        found: u64,
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
    decode::<v1::SandboxRow>(text).map(Sandbox::from)
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
    decode::<v1::OperationRow>(text).map(OperationRecord::from)
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
    decode::<v1::SnapshotRow>(text).map(SnapshotRecord::from)
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
    decode::<v1::EventRow>(text).map(NewEvent::from)
}

fn encode<Row: Serialize>(row: Row) -> Result<String, CodecError> {
    serde_json::to_string(&row).map_err(CodecError::Unwritable)
}

fn decode<Row: DeserializeOwned>(text: &str) -> Result<Row, CodecError> {
    #[derive(Deserialize)]
    struct Header {
        v: u64,
    }
    let header: Header = serde_json::from_str(text).map_err(CodecError::Unversioned)?;
    match header.v {
        VERSION => serde_json::from_str(text).map_err(|source| CodecError::Shape { version: VERSION, source }),
        found => Err(CodecError::Version { found }),
    }
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod properties;
