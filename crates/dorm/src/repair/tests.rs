//! Damaged data directories, and their content after a repair.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dorm_lifecycle::{
    Origin, ProjectId, Resources, Restored, Sandbox, SandboxId, SandboxSpec, SavedStateId, SleepImage, SnapshotId,
    SnapshotKind, State, Timestamp, VolumeId, WebhookId, Writers,
};
use dorm_storage::{SavedStateFacts, WrittenFile};
use dorm_store::{
    Maker, OperationRecord, Removal, SandboxFilter, SandboxRecord, SnapshotRecord, SnapshotStatus, Store as _,
    VolumeRecord, VolumeStatus, WebhookRecord,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use super::*;
use crate::records::{DIRECTORY, FiledStore};

const AT: Timestamp = Timestamp::from_millis(1_000);

/// A data directory as a daemon leaves it: a suspended sandbox `web` with an image of its second
/// generation, a memory snapshot of it, a webhook and a volume.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

pub(crate) fn sandbox_id() -> SandboxId {
    SandboxId::from_random([1; 20])
}

fn image_id() -> SavedStateId {
    SavedStateId::from_random([2; 20])
}

fn snapshot_saved_state() -> SavedStateId {
    SavedStateId::from_random([3; 20])
}

fn image() -> dorm_lifecycle::Digest {
    "5".repeat(64).parse().unwrap()
}

pub(crate) fn sandbox() -> Sandbox {
    let mut spec = SandboxSpec::new(image(), Some("web".parse().unwrap()));
    spec.labels.insert("team".to_owned(), "blue".to_owned());
    Sandbox {
        id: sandbox_id(),
        project: ProjectId::local(),
        spec,
        origin: Origin::Image,
        created: AT,
        generation: 2,
        run: 2,
        last_active: AT,
        timeouts_set: AT,
        started: None,
        woken: false,
        holds: Vec::new(),
        restored: Restored::Nothing,
        rewound: None,
        older: Vec::new(),
        unreachable: None,
        suspend_failures: None,
        pool: None,
        created_by: None,
        state: State::Suspended {
            image: SleepImage { saved_state: image_id(), generation: 2, taken: AT, bytes: 5, files: None },
            background: None,
        },
    }
}

fn snapshot() -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::from_random([4; 20]),
        project: ProjectId::local(),
        name: None,
        source: sandbox_id(),
        generation: 1,
        parent: None,
        kind: SnapshotKind::Memory,
        saved_state: snapshot_saved_state(),
        image: image(),
        layer: None,
        resources: Resources::default(),
        inherited: None,
        created: AT,
        bytes: 5,
        shares_data: false,
        labels: [("keep".to_owned(), "me".to_owned())].into(),
        removal: Removal::Asked,
        made_by: Maker::Request,
        status: SnapshotStatus::Completed,
    }
}

fn webhook() -> WebhookRecord {
    WebhookRecord {
        id: WebhookId::from_random([5; 20]),
        project: ProjectId::local(),
        url: "http://127.0.0.1:9/".to_owned(),
        secret: [7; 32],
        kinds: Vec::new(),
        created: AT,
        delivered: 0,
    }
}

fn volume() -> VolumeRecord {
    VolumeRecord {
        id: VolumeId::from_random([6; 20]),
        project: ProjectId::local(),
        name: "data".parse().unwrap(),
        size_bytes: 1 << 30,
        writers: Writers::One,
        created: AT,
        status: VolumeStatus::Ready,
    }
}

/// Returns the records of a store.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Records {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) snapshots: Vec<SnapshotRecord>,
    pub(crate) webhooks: Vec<WebhookRecord>,
    pub(crate) volumes: Vec<VolumeRecord>,
    operations: Vec<OperationRecord>,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(place.data().join("key"), "dorm_key").unwrap();
        place.save(image_id(), 2).await;
        place.save(snapshot_saved_state(), 1).await;
        let sql = Arc::new(SqlStore::open(&place.database()).await.unwrap());
        let store = FiledStore::new(sql.clone(), place.data());
        let mut before = sandbox();
        before.state = State::Running { since: AT, image: None, background: None };
        let change = Change {
            sandboxes: vec![SandboxRecord { sandbox: before, revision: 0 }],
            snapshots: vec![snapshot()],
            webhooks: vec![webhook()],
            volumes: vec![volume()],
            ..Change::default()
        };
        store.commit(change).await.unwrap();
        let change = Change { sandboxes: vec![SandboxRecord { sandbox: sandbox(), revision: 1 }], ..Change::default() };
        store.commit(change).await.unwrap();
        store.close().await;
        sql.close().await.unwrap();
        place
    }

    pub(crate) fn data(&self) -> &Path {
        self.directory.path()
    }

    fn database(&self) -> PathBuf {
        self.data().join(DATABASE)
    }

    fn storage(&self) -> Storage {
        Storage::open(self.data(), &self.data().join("images")).unwrap()
    }

    async fn save(&self, id: SavedStateId, generation: u64) {
        let draft = self.storage().begin(&id, 1_000).await.unwrap();
        fs::write(draft.directory().join("pages"), "pages").unwrap();
        let facts = SavedStateFacts {
            engine: "fake".to_owned(),
            build: "1".to_owned(),
            cpu: "any".to_owned(),
            image: image(),
            layer: None,
            sandbox: sandbox_id(),
            generation,
            parent: None,
            resources: Resources::default(),
            taken: AT,
        };
        let written = WrittenFile { name: "pages".into(), bytes: 5, shared_with: None, blake3: None };
        draft.commit(facts, &[written]).await.unwrap();
    }

    pub(crate) async fn sql(&self, statement: &'static str) {
        let mut connection = SqliteConnectOptions::new().filename(self.database()).connect().await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    fn without_files(&self) {
        fs::remove_dir_all(self.data().join(DIRECTORY)).unwrap();
    }

    async fn repair(&self, asked: Asked) -> Report {
        repair(self.data(), &self.data().join("images"), asked).await.unwrap()
    }

    pub(crate) async fn records(&self) -> Records {
        let store = SqlStore::open(&self.database()).await.unwrap();
        let sandboxes = store.sandboxes(&SandboxFilter::default()).await.unwrap();
        let records = Records {
            sandboxes: sandboxes.into_iter().map(|record| record.sandbox).collect(),
            snapshots: store.snapshots(None).await.unwrap(),
            webhooks: store.webhooks().await.unwrap(),
            volumes: store.volumes().await.unwrap(),
            operations: store.open_operations().await.unwrap(),
        };
        store.close().await.unwrap();
        records
    }
}

pub(crate) fn all() -> Records {
    Records {
        sandboxes: vec![sandbox()],
        snapshots: vec![snapshot()],
        webhooks: vec![webhook()],
        volumes: vec![volume()],
        operations: Vec::new(),
    }
}

const SPOIL: [&str; 4] = [
    "UPDATE sandboxes SET document = substr(document, 1, 40)",
    "UPDATE snapshots SET document = CAST(x'ff00' AS TEXT)",
    "UPDATE webhooks SET document = ''",
    "UPDATE volumes SET document = replace(document, '\"v\":1', '\"v\":9')",
];

#[tokio::test]
async fn every_unreadable_row_is_written_again_as_it_was() {
    let place = Place::new().await;
    for statement in SPOIL {
        place.sql(statement).await;
    }
    assert_eq!(
        place.records().await,
        Records { sandboxes: vec![], snapshots: vec![], webhooks: vec![], volumes: vec![], operations: vec![] }
    );
    let dry = place.repair(Asked { dry_run: true, ..Asked::default() }).await;
    assert!(dry.is_mended() && dry.findings.len() == 4 && dry.kept.is_none(), "{dry:#?}");
    assert!(place.records().await.sandboxes.is_empty(), "a dry run changes nothing");
    let report = place.repair(Asked::default()).await;
    assert!(report.is_mended() && report.findings.len() == 4, "{report:#?}");
    assert_eq!(place.records().await, all());
    // The old database is kept unchanged.
    let kept = dorm_store_sql::check(&report.kept.unwrap()).await.unwrap();
    assert_eq!(kept.unreadable.len(), 4);
    let again = place.repair(Asked::default()).await;
    assert!(again.findings.is_empty() && again.kept.is_none(), "{again:#?}");
}

#[tokio::test]
async fn without_record_files_a_sandbox_and_a_snapshot_come_from_their_saved_states() {
    let place = Place::new().await;
    place.without_files();
    // One byte of each is wrong; their ids can be read.
    place.sql("UPDATE sandboxes SET document = replace(document, '\"spec\"', '\"spek\"')").await;
    place.sql("UPDATE snapshots SET document = replace(document, '\"kind\"', '\"kin\"')").await;
    let report = place.repair(Asked::default()).await;
    assert!(report.is_mended(), "{report:#?}");
    let Records { sandboxes, snapshots, .. } = place.records().await;
    let [web] = sandboxes.as_slice() else { panic!("{sandboxes:?}") };
    assert_eq!((&web.id, web.spec.name.as_ref().unwrap().as_str(), web.generation), (&sandbox_id(), "web", 2));
    assert_eq!(web.state, sandbox().state);
    assert_eq!((web.spec.suspendable, web.expires()), (true, None));
    let [found] = snapshots.as_slice() else { panic!("{snapshots:?}") };
    assert_eq!((&found.id, &found.saved_state, found.generation), (&snapshot().id, &snapshot_saved_state(), 1));
}

#[tokio::test]
async fn a_database_that_is_gone_or_cut_off_is_made_anew_from_record_files() {
    let length = fs::metadata(Place::new().await.database()).unwrap().len();
    for left in [None, Some(0), Some(100), Some(4096), Some(5000), Some(20_000), Some(length / 2), Some(length - 1)] {
        let place = Place::new().await;
        match left {
            None => fs::remove_file(place.database()).unwrap(),
            Some(left) => fs::File::options().write(true).open(place.database()).unwrap().set_len(left).unwrap(),
        }
        let report = place.repair(Asked::default()).await;
        assert!(report.is_mended(), "{left:?}: {report:#?}");
        assert_eq!(place.records().await, all(), "{left:?}: {report:#?}");
    }
}

#[tokio::test]
async fn snapshots_whose_record_files_have_one_name_are_both_kept() {
    let place = Place::new().await;
    let saved_state = SavedStateId::from_random([9; 20]);
    place.save(saved_state.clone(), 1).await;
    let name = Some("my-snap".parse().unwrap());
    let first = SnapshotRecord { name, ..snapshot() };
    let second = SnapshotRecord { id: SnapshotId::from_random([9; 20]), saved_state, ..first.clone() };
    for record in [&first, &second] {
        // In one store, the second would be refused.
        let alone = tempfile::tempdir().unwrap();
        let sql = Arc::new(SqlStore::open(&alone.path().join(DATABASE)).await.unwrap());
        let store = FiledStore::new(sql.clone(), place.data());
        store.commit(Change { snapshots: vec![record.clone()], ..Change::default() }).await.unwrap();
        store.close().await;
        sql.close().await.unwrap();
    }
    fs::remove_file(place.database()).unwrap();
    let report = place.repair(Asked::default()).await;
    let nameless = SnapshotRecord { name: None, ..second };
    assert_eq!(place.records().await.snapshots, [first, nameless], "{report:#?}");
    let told = format!("{report:?}");
    assert!(told.contains(&format!("its name: none, because snapshot {} has 'my-snap'", snapshot().id)), "{told}");
}

#[tokio::test]
async fn a_lost_database_without_record_files_leaves_what_saved_states_tell() {
    let place = Place::new().await;
    place.without_files();
    fs::remove_file(place.database()).unwrap();
    let report = place.repair(Asked::default()).await;
    assert!(report.is_mended(), "{report:#?}");
    let Records { sandboxes, snapshots, .. } = place.records().await;
    let [found] = sandboxes.as_slice() else { panic!("{sandboxes:?}") };
    assert_eq!((&found.id, &found.state), (&sandbox_id(), &sandbox().state));
    assert!(found.spec.name.as_ref().unwrap().as_str().starts_with("repaired-"));
    assert_eq!(found.spec.egress, dorm_lifecycle::Egress::Allow(Vec::new()));
    let [found] = snapshots.as_slice() else { panic!("{snapshots:?}") };
    assert_eq!(found.saved_state, snapshot_saved_state());
}

#[tokio::test]
async fn a_damaged_saved_state_is_never_made_a_record_of() {
    let place = Place::new().await;
    place.without_files();
    fs::remove_file(place.database()).unwrap();
    fs::write(place.data().join("saved_states").join(image_id().as_str()).join("pages"), "pagez").unwrap();
    fs::write(place.data().join("saved_states").join(snapshot_saved_state().as_str()).join("manifest.json"), "{")
        .unwrap();
    let report = place.repair(Asked::default()).await;
    assert!(!report.is_mended(), "{report:#?}");
    assert_eq!(place.records().await.sandboxes, []);
    assert_eq!(place.records().await.snapshots, []);
    let named: Vec<_> = report.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert!(named.contains(&image_id().as_str()) && named.contains(&snapshot_saved_state().as_str()), "{report:#?}");
}

#[tokio::test]
async fn a_row_without_remedy_stays_until_its_quarantine_is_requested() {
    let place = Place::new().await;
    place.sql("INSERT INTO operations (id, is_open, document) VALUES ('operationaaaaaaaaaaa', 1, '{')").await;
    let report = place.repair(Asked::default()).await;
    assert!(!report.is_mended() && report.kept.is_none(), "{report:#?}");
    let count = async || dorm_store_sql::check(&place.database()).await.unwrap().unreadable.len();
    assert_eq!(count().await, 1);
    let report = place.repair(Asked { quarantine: true, ..Asked::default() }).await;
    let Remedy::Quarantined(file) = &report.findings[0].remedy else { panic!("{report:#?}") };
    assert!(fs::read_to_string(file).unwrap().contains("operationaaaaaaaaaaa"));
    assert_eq!((count().await, place.records().await), (0, all()));
}

#[tokio::test]
async fn a_sandbox_whose_image_is_gone_is_given_the_newest_that_no_record_needs() {
    let place = Place::new().await;
    place.without_files();
    let newer = SavedStateId::from_random([9; 20]);
    place.save(newer.clone(), 5).await;
    fs::remove_dir_all(place.data().join("saved_states").join(image_id().as_str())).unwrap();
    let report = place.repair(Asked::default()).await;
    assert!(report.is_mended(), "{report:#?}");
    let web = &place.records().await.sandboxes[0];
    assert_eq!((&web.state.image().unwrap().saved_state, web.generation), (&newer, 5));
    assert_eq!(web.spec.labels, sandbox().spec.labels);
}
