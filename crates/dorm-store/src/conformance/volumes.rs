//! Volumes are replaced as a whole, listed in the order of their ids, and removed when a change
//! says so. The attached volumes of a sandbox are part of its own record.

use std::sync::Arc;

use dorm_lifecycle::{Access, Attachment, StateName, VolumeId, Writers};

use super::sample::{at, bytes, project, sandbox};
use crate::{Change, Store, StoreError, VolumeRecord, VolumeStatus};

type Checked = Result<(), StoreError>;

pub(super) fn volume(number: u32) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId::from_random(bytes(number)),
        project: project("local"),
        name: format!("data{number}").parse().expect("a legal name"),
        size_bytes: 1 << 30,
        writers: Writers::One,
        created: at(1_000),
        status: VolumeStatus::Creating,
    }
}

pub(super) async fn a_volume_is_rewritten_and_removed(store: Arc<dyn Store>) -> Checked {
    let write = async |volumes: Vec<VolumeRecord>, removed_volumes: Vec<VolumeId>| {
        store.commit(Change { volumes, removed_volumes, ..Change::default() }).await.map(drop)
    };
    write(vec![volume(2), volume(1)], Vec::new()).await?;
    assert_eq!(store.volumes().await?, [volume(1), volume(2)]);
    let further = VolumeRecord { status: VolumeStatus::Deleting, writers: Writers::Many, ..volume(1) };
    write(vec![further.clone()], vec![volume(2).id, volume(77).id]).await?;
    assert_eq!(store.volumes().await?, [further]);
    Ok(())
}

pub(super) async fn an_attachment_reads_back_as_it_was_written(store: Arc<dyn Store>) -> Checked {
    let mut record = sandbox(1, None, StateName::Running);
    record.sandbox.spec.attachments = vec![Attachment {
        volume: volume(1).id,
        path: "/data".parse().expect("a legal path"),
        access: Access::Read,
        subpath: "a/b".parse().expect("a legal part"),
        slot: 3,
    }];
    store.commit(Change { sandboxes: vec![record.clone()], ..Change::default() }).await?;
    let found = store.sandbox(&record.sandbox.id).await?.expect("it is there");
    assert_eq!(found.sandbox, record.sandbox);
    Ok(())
}
