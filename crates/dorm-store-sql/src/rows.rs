//! Stored rows, and the records in them.
//!
//! Columns are read as bytes: a damaged file may hold anything, and one row that cannot be read
//! must not hide the others. The columns of a sandbox repeat values of its document. A row in which
//! they differ is unreadable, too, because it is unknown which of them is damaged.

use dorm_lifecycle::{SavedStateId, StateName};
use dorm_store::codec::{self, CodecError};
use dorm_store::{
    ApiKeyRecord, BuildRecord, EnvironmentRecord, EventRecord, OperationRecord, PoolRecord, ProjectRecord,
    RequestRecord, RowKind, SandboxRecord, SnapshotRecord, TemplateRecord, UnreadableRow, VolumeRecord, WebhookRecord,
};

/// Id, project, name, state, revision and document of a sandbox.
pub(crate) type SandboxRow = (Vec<u8>, Vec<u8>, Option<Vec<u8>>, Vec<u8>, i64, Vec<u8>);
/// Id and document.
pub(crate) type DocumentRow = (Vec<u8>, Vec<u8>);

pub(crate) const LIVING: &str = "SELECT id, project, name, state, revision, document FROM sandboxes INDEXED BY sandboxes_living \
     WHERE state <> 'terminated'";
pub(crate) const OPEN: &str = "SELECT id, document FROM operations WHERE is_open = 1";
pub(crate) const SNAPSHOTS: &str = "SELECT id, document FROM snapshots";
pub(crate) const DISCARDS: &str = "SELECT saved_state FROM discards ORDER BY saved_state";
pub(crate) const WEBHOOKS: &str = "SELECT id, document FROM webhooks ORDER BY id";
pub(crate) const POOLS: &str = "SELECT id, document FROM pools ORDER BY id";
pub(crate) const BUILDS: &str = "SELECT id, document FROM builds ORDER BY id";
pub(crate) const ENVIRONMENTS: &str = "SELECT id, document FROM environments ORDER BY id";
pub(crate) const TEMPLATES: &str = "SELECT id, document FROM templates ORDER BY id";
pub(crate) const PROJECTS: &str = "SELECT id, document FROM projects ORDER BY id";
pub(crate) const API_KEYS: &str = "SELECT id, document FROM api_keys ORDER BY id";
pub(crate) const VOLUMES: &str = "SELECT id, document FROM volumes ORDER BY id";

/// A row that cannot be read. Boxed because it is large and rare.
pub(crate) type Unread = Box<UnreadableRow>;

/// The records of the rows that can be read.
pub(crate) fn readable<Row, Record>(rows: Vec<Row>, record: impl Fn(Row) -> Result<Record, Unread>) -> Vec<Record> {
    let read = rows.into_iter().map(record);
    read.filter_map(|record| record.inspect_err(|row| tracing::debug!(?row, "a row is left out")).ok()).collect()
}

/// The rows that cannot be read.
pub(crate) fn unreadable_of<Row, Record>(
    rows: Vec<Row>,
    record: impl Fn(Row) -> Result<Record, Unread>,
) -> impl Iterator<Item = UnreadableRow> {
    rows.into_iter().filter_map(move |row| record(row).err().map(|row| *row))
}

pub(crate) fn sandbox_of(row: SandboxRow) -> Result<SandboxRecord, Unread> {
    let (id, project, name, state, revision, document) = row;
    let read = text(&document).and_then(|text| codec::decode_sandbox(text).map_err(|error| chain(&error)));
    let checked = read.and_then(|sandbox| {
        let spec_name = sandbox.spec.name.as_ref().map(|name| name.as_str().as_bytes());
        let differing = [
            ("id", sandbox.id.as_str().as_bytes() == id),
            ("project", sandbox.project.as_str().as_bytes() == project),
            ("name", spec_name == name.as_deref()),
            ("state", sandbox.state.name().as_str().as_bytes() == state),
        ];
        match differing.into_iter().find(|(_, is_same)| !is_same) {
            Some((column, _)) => Err(format!("its column '{column}' and its document differ")),
            None => Ok(sandbox),
        }
    });
    checked.map(|sandbox| SandboxRecord { sandbox, revision: revision.unsigned_abs() }).map_err(|what| {
        let is_over = state == StateName::Terminated.as_str().as_bytes();
        Box::new(UnreadableRow {
            revision: u64::try_from(revision).ok(),
            project: parsed(&project),
            name: name.filter(|_| !is_over).and_then(|name| parsed(&name)),
            ..*unread(RowKind::Sandbox, &id, document, what)
        })
    })
}

pub(crate) fn operation_of(row: DocumentRow) -> Result<OperationRecord, Unread> {
    of(RowKind::Operation, row, codec::decode_operation, |operation| operation.id.as_str())
}

pub(crate) fn snapshot_of(row: DocumentRow) -> Result<SnapshotRecord, Unread> {
    of(RowKind::Snapshot, row, codec::decode_snapshot, |snapshot| snapshot.id.as_str())
}

pub(crate) fn webhook_of(row: DocumentRow) -> Result<WebhookRecord, Unread> {
    of(RowKind::Webhook, row, codec::decode_webhook, |webhook| webhook.id.as_str())
}

pub(crate) fn pool_of(row: DocumentRow) -> Result<PoolRecord, Unread> {
    of(RowKind::Pool, row, codec::decode_pool, |pool| pool.id.as_str())
}

pub(crate) fn build_of(row: DocumentRow) -> Result<BuildRecord, Unread> {
    of(RowKind::Build, row, codec::decode_build, |build| build.id.as_str())
}

pub(crate) fn environment_of(row: DocumentRow) -> Result<EnvironmentRecord, Unread> {
    of(RowKind::Environment, row, codec::decode_environment, |environment| environment.id.as_str())
}

pub(crate) fn template_of(row: DocumentRow) -> Result<TemplateRecord, Unread> {
    of(RowKind::Template, row, codec::decode_template, |template| template.id.as_str())
}

pub(crate) fn project_of(row: DocumentRow) -> Result<ProjectRecord, Unread> {
    of(RowKind::Project, row, codec::decode_project, |project| project.id.as_str())
}

pub(crate) fn api_key_of(row: DocumentRow) -> Result<ApiKeyRecord, Unread> {
    of(RowKind::ApiKey, row, codec::decode_api_key, |key| key.id.as_str())
}

pub(crate) fn request_of(row: DocumentRow) -> Result<RequestRecord, Unread> {
    of(RowKind::Request, row, codec::decode_request, |request| request.id.as_str())
}

pub(crate) fn volume_of(row: DocumentRow) -> Result<VolumeRecord, Unread> {
    of(RowKind::Volume, row, codec::decode_volume, |volume| volume.id.as_str())
}

pub(crate) fn discard_of((saved_state,): (Vec<u8>,)) -> Result<SavedStateId, Unread> {
    let read = text(&saved_state).and_then(|text| text.parse().map_err(|error| chain(&error)));
    read.map_err(|what| unread(RowKind::Discard, &saved_state, Vec::new(), what))
}

pub(crate) fn event_of((number, document): (i64, Vec<u8>)) -> Result<EventRecord, Unread> {
    let read = text(&document).and_then(|text| codec::decode_event(text).map_err(|error| chain(&error)));
    let read = read.map(|event| EventRecord { number: number.unsigned_abs(), event });
    read.map_err(|what| unread(RowKind::Event, number.to_string().as_bytes(), document, what))
}

fn of<Record>(
    kind: RowKind,
    (id, document): DocumentRow,
    decode: impl Fn(&str) -> Result<Record, CodecError>,
    id_of: impl Fn(&Record) -> &str,
) -> Result<Record, Unread> {
    let read = text(&document).and_then(|text| decode(text).map_err(|error| chain(&error)));
    let checked = read.and_then(|record| match id_of(&record).as_bytes() == id {
        true => Ok(record),
        false => Err("its key and its document differ".to_owned()),
    });
    checked.map_err(|what| unread(kind, &id, document, what))
}

fn unread(kind: RowKind, id: &[u8], raw: Vec<u8>, what: String) -> Unread {
    let id = String::from_utf8_lossy(id).into_owned();
    Box::new(UnreadableRow { kind, id, revision: None, project: None, name: None, what, raw })
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("it is not text ({error})"))
}

fn parsed<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{cause}")
}
