//! Sandbox pools are replaced as a whole, listed in the order of their ids, and removed when a
//! change says so.

use std::sync::Arc;

use dorm_lifecycle::{Egress, FirstProgram, PoolId, PortAccess, SnapshotId};

use super::sample::{at, bytes, project};
use crate::{Change, PoolRecord, PoolSource, Store, StoreError};

type Checked = Result<(), StoreError>;

pub(super) fn pool(number: u32) -> PoolRecord {
    let name = format!("pool-{number}");
    PoolRecord {
        id: PoolId::from_random(bytes(number)),
        project: project("local"),
        name: name.parse().unwrap_or_else(|_| unreachable!("it is legal")),
        source: PoolSource::Snapshot(SnapshotId::from_random(bytes(number))),
        program: Some(FirstProgram::None),
        resources: None,
        egress: Some(Egress::closed()),
        variables: [("A".to_owned(), "1".to_owned())].into(),
        port_access: Some(PortAccess::Private),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ready: 3,
        most: Some(5),
        created: at(1_000),
        removed: false,
    }
}

pub(super) async fn a_pool_is_rewritten_and_removed(store: Arc<dyn Store>) -> Checked {
    let write = async |pools: Vec<PoolRecord>, removed_pools: Vec<PoolId>| {
        store.commit(Change { pools, removed_pools, ..Change::default() }).await.map(drop)
    };
    write(vec![pool(2), pool(1)], Vec::new()).await?;
    assert_eq!(store.pools().await?, [pool(1), pool(2)]);
    let smaller = PoolRecord { ready: 0, most: None, removed: true, ..pool(1) };
    write(vec![smaller.clone()], vec![pool(2).id, pool(77).id]).await?;
    assert_eq!(store.pools().await?, [smaller]);
    Ok(())
}
