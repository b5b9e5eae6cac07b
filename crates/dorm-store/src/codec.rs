//! Records as text: versioned JSON, written and read by every store that keeps text.
//!
//! The text of every version stays readable for ever; `goldens/` holds one of each. Reading is
//! strict: an unknown or missing field, an unknown word and a later version are errors, because the
//! meaning of a record must not be guessed. Revisions and numbers are not part of the text: they
//! belong to the store.

mod rows;
mod word;

use std::time::Duration;

use dorm_lifecycle::environment::Workspace;
use dorm_lifecycle::{ProjectId, Sandbox, SnapshotKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{
    ApiKeyRecord, BuildRecord, ClockNote, EnvironmentRecord, NewEvent, OperationRecord, PoolRecord, ProjectRecord,
    RequestRecord, SnapshotRecord, TemplateRecord, VolumeRecord, WebhookRecord,
};

/// The current version of sandboxes.
pub const SANDBOX: u64 = 2;
/// The current version of operations.
pub const OPERATION: u64 = 2;
/// The current version of snapshots.
pub const SNAPSHOT: u64 = 2;
/// The current version of events.
pub const EVENT: u64 = 2;
/// The current version of webhooks.
pub const WEBHOOK: u64 = 2;
/// The current version of API keys.
pub const API_KEY: u64 = 1;
/// The current version of sandbox pools.
pub const POOL: u64 = 1;
/// The current version of builds.
pub const BUILD: u64 = 1;
/// The current version of templates.
pub const TEMPLATE: u64 = 1;
/// The current version of environments.
pub const ENVIRONMENT: u64 = 1;
/// The current version of projects.
pub const PROJECT: u64 = 1;
/// The current version of requests with an idempotency key.
pub const REQUEST: u64 = 2;
/// The current version of volumes.
pub const VOLUME: u64 = 1;
/// The current version of the note of the clocks.
pub const CLOCK: u64 = 1;

/// Why a text cannot be decoded, or a record cannot be encoded.
#[derive(Debug, Error)]
pub enum CodecError {
    /// Not a JSON object with a version.
    #[error("the text is not a JSON object with a version 'v'")]
    Unversioned(#[source] serde_json::Error),
    /// The version is unknown to this program.
    #[error(
        "the text is of version {found}, but this dorm reads versions up to {newest}: use the newer dorm that wrote it"
    )]
    Version {
        /// Its version.
        found: u64,
        /// The newest version that this program reads.
        newest: u64,
    },
    /// A field is unknown, missing, or not allowed by the version.
    #[error("the text is not a record of version {version}")]
    Shape {
        /// Its version.
        version: u64,
        /// The field and its position.
        #[source]
        source: serde_json::Error,
    },
    /// The record cannot be encoded.
    #[error("the record cannot be written as text")]
    Unwritable(#[source] serde_json::Error),
}

/// Encodes a sandbox.
///
/// # Errors
/// [`CodecError::Unwritable`], which no sandbox is known to cause.
pub fn encode_sandbox(sandbox: &Sandbox) -> Result<String, CodecError> {
    encode::<rows::SandboxRow>(sandbox.into())
}

/// Decodes a sandbox.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_sandbox(text: &str) -> Result<Sandbox, CodecError> {
    match version(text)? {
        // Version 2 adds egress rules, operations that change the egress and the resources, in
        // place of `auto_resume` the calls that wake a sandbox, the pool, suspends that keep files
        // only, the limit after a wake, the last start, annotations, rules for single ports, the
        // caller, the run that a rewind holds, and the program, which version 1 only knows while it
        // starts.
        1 => decode_earlier::<rows::SandboxRow>(text, 1, |sandbox| {
            for field in ["pool", "started", "created_by"] {
                sandbox.insert(field.to_owned(), Value::Null);
            }
            sandbox.insert("woken".to_owned(), Value::Bool(false));
            add_inside(sandbox);
            let program = sandbox.get("state").and_then(|state| state.pointer("/pending/program")).cloned();
            let Some(spec) = sandbox.get_mut("spec").and_then(Value::as_object_mut) else { return };
            spec.remove("wake");
            spec.insert("program".to_owned(), program.unwrap_or_else(|| "none".into()));
            spec.insert("port_host".to_owned(), Value::Null);
            spec.insert("port_rules".to_owned(), Value::Object(Map::new()));
            spec.insert("annotations".to_owned(), Value::Object(Map::new()));
            if let Some(timeouts) = spec.get_mut("timeouts").and_then(Value::as_object_mut) {
                timeouts.insert("after_wake".to_owned(), Value::Null);
            }
            if let Some(Value::Bool(resumes)) = spec.remove("auto_resume") {
                spec.insert("wake".to_owned(), if resumes { "traffic" } else { "never" }.into());
            }
        })
        .map(Sandbox::from),
        SANDBOX => decode::<rows::SandboxRow>(text, SANDBOX).map(Sandbox::from),
        found => Err(CodecError::Version { found, newest: SANDBOX }),
    }
}

/// Encodes an operation.
///
/// # Errors
/// [`CodecError::Unwritable`], which no operation is known to cause.
pub fn encode_operation(operation: &OperationRecord) -> Result<String, CodecError> {
    encode::<rows::OperationRow>(operation.into())
}

/// Decodes an operation.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_operation(text: &str) -> Result<OperationRecord, CodecError> {
    match version(text)? {
        // Version 2 adds a kind, the project, and the caller.
        1 => decode_earlier::<rows::OperationRow>(text, 1, |operation| {
            operation.insert("project".to_owned(), ProjectId::local().as_str().into());
            operation.insert("caller".to_owned(), Value::Null);
        })
        .map(OperationRecord::from),
        OPERATION => decode::<rows::OperationRow>(text, OPERATION).map(OperationRecord::from),
        found => Err(CodecError::Version { found, newest: OPERATION }),
    }
}

/// Encodes a snapshot.
///
/// # Errors
/// [`CodecError::Unwritable`], which no snapshot is known to cause.
pub fn encode_snapshot(snapshot: &SnapshotRecord) -> Result<String, CodecError> {
    encode::<rows::SnapshotRow>(snapshot.into())
}

/// Decodes a snapshot.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_snapshot(text: &str) -> Result<SnapshotRecord, CodecError> {
    match version(text)? {
        // Version 2 adds the name, and the settings that a sandbox inherits.
        1 => decode_earlier::<rows::SnapshotRow>(text, 1, |snapshot| {
            for field in ["name", "inherited"] {
                snapshot.insert(field.to_owned(), Value::Null);
            }
        })
        .map(SnapshotRecord::from),
        SNAPSHOT => decode::<rows::SnapshotRow>(text, SNAPSHOT).map(SnapshotRecord::from),
        found => Err(CodecError::Version { found, newest: SNAPSHOT }),
    }
}

/// Encodes an event.
///
/// # Errors
/// [`CodecError::Unwritable`], which no event is known to cause.
pub fn encode_event(event: &NewEvent) -> Result<String, CodecError> {
    encode::<rows::EventRow>(event.into())
}

/// Decodes an event.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_event(text: &str) -> Result<NewEvent, CodecError> {
    match version(text)? {
        // Version 2 adds kinds, and the caller.
        1 => decode_earlier::<rows::EventRow>(text, 1, |event| {
            event.insert("caller".to_owned(), Value::Null);
        })
        .map(NewEvent::from),
        EVENT => decode::<rows::EventRow>(text, EVENT).map(NewEvent::from),
        found => Err(CodecError::Version { found, newest: EVENT }),
    }
}

/// Encodes an API key. The text holds the hash of the key, not the key.
///
/// # Errors
/// [`CodecError::Unwritable`], which no API key is known to cause.
pub fn encode_api_key(key: &ApiKeyRecord) -> Result<String, CodecError> {
    encode::<rows::ApiKeyRow>(key.into())
}

/// Decodes an API key.
///
/// # Errors
/// A [`CodecError`] that says what is wrong with the text.
pub fn decode_api_key(text: &str) -> Result<ApiKeyRecord, CodecError> {
    match version(text)? {
        API_KEY => decode::<rows::ApiKeyRow>(text, API_KEY).map(ApiKeyRecord::from),
        found => Err(CodecError::Version { found, newest: API_KEY }),
    }
}

/// Encodes a sandbox pool.
///
/// # Errors
/// [`CodecError::Unwritable`], which no pool is known to cause.
pub fn encode_pool(pool: &PoolRecord) -> Result<String, CodecError> {
    encode::<rows::PoolRow>(pool.into())
}

/// Decodes a sandbox pool.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_pool(text: &str) -> Result<PoolRecord, CodecError> {
    match version(text)? {
        POOL => decode::<rows::PoolRow>(text, POOL).map(PoolRecord::from),
        found => Err(CodecError::Version { found, newest: POOL }),
    }
}

/// Encodes a build.
///
/// # Errors
/// [`CodecError::Unwritable`], which no build is known to cause.
pub fn encode_build(build: &BuildRecord) -> Result<String, CodecError> {
    encode::<rows::BuildRow>(build.into())
}

/// Decodes a build.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_build(text: &str) -> Result<BuildRecord, CodecError> {
    match version(text)? {
        BUILD => decode::<rows::BuildRow>(text, BUILD).map(BuildRecord::from),
        found => Err(CodecError::Version { found, newest: BUILD }),
    }
}

/// Encodes an environment.
///
/// # Errors
/// [`CodecError::Unwritable`], which no environment is known to cause.
pub fn encode_environment(environment: &EnvironmentRecord) -> Result<String, CodecError> {
    encode::<rows::EnvironmentRow>(environment.into())
}

/// Decodes an environment.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_environment(text: &str) -> Result<EnvironmentRecord, CodecError> {
    match version(text)? {
        ENVIRONMENT => decode::<rows::EnvironmentRow>(text, ENVIRONMENT).map(EnvironmentRecord::from),
        found => Err(CodecError::Version { found, newest: ENVIRONMENT }),
    }
}

/// Returns the SHA-256 of a workspace and of the kind of its snapshots, by which a snapshot of the
/// same workspace is found. The time limit of a step is not a property of the result, and no part
/// of the hash.
pub fn workspace_hash(workspace: &Workspace, kind: SnapshotKind) -> String {
    let workspace = Workspace { step_limit: Duration::ZERO, ..workspace.clone() };
    let mut hash = Sha256::new();
    hash.update(format!("{} {}", kind.as_str(), workspace_text(&workspace)));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text of a workspace, as it is part of an environment.
fn workspace_text(workspace: &Workspace) -> String {
    serde_json::to_string(&rows::WorkspaceRow::from(workspace)).unwrap_or_default()
}

/// Encodes a template.
///
/// # Errors
/// [`CodecError::Unwritable`], which no template is known to cause.
pub fn encode_template(template: &TemplateRecord) -> Result<String, CodecError> {
    encode::<rows::TemplateRow>(template.into())
}

/// Decodes a template.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_template(text: &str) -> Result<TemplateRecord, CodecError> {
    match version(text)? {
        TEMPLATE => decode::<rows::TemplateRow>(text, TEMPLATE).map(TemplateRecord::from),
        found => Err(CodecError::Version { found, newest: TEMPLATE }),
    }
}

/// Encodes a project.
///
/// # Errors
/// [`CodecError::Unwritable`], which no project is known to cause.
pub fn encode_project(project: &ProjectRecord) -> Result<String, CodecError> {
    encode::<rows::ProjectRow>(project.into())
}

/// Decodes a project.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_project(text: &str) -> Result<ProjectRecord, CodecError> {
    match version(text)? {
        PROJECT => decode::<rows::ProjectRow>(text, PROJECT).map(ProjectRecord::from),
        found => Err(CodecError::Version { found, newest: PROJECT }),
    }
}

/// Encodes a request with an idempotency key.
///
/// # Errors
/// [`CodecError::Unwritable`], which no request is known to cause.
pub fn encode_request(request: &RequestRecord) -> Result<String, CodecError> {
    encode::<rows::RequestRow>(request.into())
}

/// Decodes a request with an idempotency key.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_request(text: &str) -> Result<RequestRecord, CodecError> {
    match version(text)? {
        // Version 2 adds a kind of what was made.
        found @ (1 | REQUEST) => decode::<rows::RequestRow>(text, found).map(RequestRecord::from),
        found => Err(CodecError::Version { found, newest: REQUEST }),
    }
}

/// Encodes a webhook.
///
/// # Errors
/// [`CodecError::Unwritable`], which no webhook is known to cause.
pub fn encode_webhook(webhook: &WebhookRecord) -> Result<String, CodecError> {
    encode::<rows::WebhookRow>(webhook.into())
}

/// Decodes a webhook.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_webhook(text: &str) -> Result<WebhookRecord, CodecError> {
    match version(text)? {
        // Version 2 adds kinds of events.
        found @ (1 | WEBHOOK) => decode::<rows::WebhookRow>(text, found).map(WebhookRecord::from),
        found => Err(CodecError::Version { found, newest: WEBHOOK }),
    }
}

/// Encodes a volume.
///
/// # Errors
/// [`CodecError::Unwritable`], which no volume is known to cause.
pub fn encode_volume(volume: &VolumeRecord) -> Result<String, CodecError> {
    encode::<rows::VolumeRow>(volume.into())
}

/// Decodes a volume.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_volume(text: &str) -> Result<VolumeRecord, CodecError> {
    match version(text)? {
        VOLUME => decode::<rows::VolumeRow>(text, VOLUME).map(VolumeRecord::from),
        found => Err(CodecError::Version { found, newest: VOLUME }),
    }
}

/// Encodes the note of the clocks.
///
/// # Errors
/// [`CodecError::Unwritable`], which no note is known to cause.
pub fn encode_clock(note: &ClockNote) -> Result<String, CodecError> {
    encode::<rows::ClockRow>(note.into())
}

/// Decodes the note of the clocks.
///
/// # Errors
/// Any [`CodecError`] but [`CodecError::Unwritable`].
pub fn decode_clock(text: &str) -> Result<ClockNote, CodecError> {
    match version(text)? {
        CLOCK => decode::<rows::ClockRow>(text, CLOCK).map(ClockNote::from),
        found => Err(CodecError::Version { found, newest: CLOCK }),
    }
}

fn encode<Row: Serialize>(row: Row) -> Result<String, CodecError> {
    serde_json::to_string(&row).map_err(CodecError::Unwritable)
}

/// The version that a text states.
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

/// Adds the field `files` to the sleep images of a sandbox, and to its state if that has the field,
/// and `may_hold` to its rewind.
fn add_inside(fields: &mut Map<String, Value>) {
    if fields.contains_key("saved_state") && fields.contains_key("taken") {
        fields.insert("files".to_owned(), Value::Null);
    }
    if fields.contains_key("target") && fields.contains_key("future") {
        fields.insert("may_hold".to_owned(), Value::Bool(false));
    }
    if let Some(suspending) = fields.get_mut("suspending").and_then(Value::as_object_mut) {
        suspending.insert("files".to_owned(), Value::Null);
    }
    for value in fields.values_mut() {
        match value {
            Value::Object(inner) => add_inside(inner),
            Value::Array(all) => all.iter_mut().filter_map(Value::as_object_mut).for_each(add_inside),
            _ => {}
        }
    }
}

/// Decodes a text of an earlier version, whose fields `upgrade` turns into those of the newest one.
fn decode_earlier<Row: DeserializeOwned>(
    text: &str,
    version: u64,
    upgrade: impl FnOnce(&mut Map<String, Value>),
) -> Result<Row, CodecError> {
    let mut fields = decode::<Map<String, Value>>(text, version)?;
    upgrade(&mut fields);
    serde_json::from_value(Value::Object(fields)).map_err(|source| CodecError::Shape { version, source })
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod properties;
