//! API keys are replaced as a whole, listed in the order of their ids, and removed when a change
//! says so.

use std::sync::Arc;

use dorm_lifecycle::ApiKeyId;

use super::sample::{at, bytes, project, sandbox_id};
use crate::{ApiKeyRecord, Change, KeyScope, Store, StoreError};

type Checked = Result<(), StoreError>;

pub(super) fn key(number: u32, scope: KeyScope) -> ApiKeyRecord {
    ApiKeyRecord {
        id: ApiKeyId::from_random(bytes(number)),
        project: project("local"),
        name: format!("key {number}"),
        scope,
        hash: [7; 32],
        created: at(1_000),
        expires: Some(at(2_000)),
    }
}

pub(super) async fn an_api_key_is_written_and_removed(store: Arc<dyn Store>) -> Checked {
    let write = async |api_keys: Vec<ApiKeyRecord>, removed_api_keys: Vec<ApiKeyId>| {
        store.commit(Change { api_keys, removed_api_keys, ..Change::default() }).await.map(drop)
    };
    let (full, one) = (key(1, KeyScope::Full), key(2, KeyScope::Sandbox(sandbox_id(5))));
    write(vec![one.clone(), full.clone()], Vec::new()).await?;
    assert_eq!(store.api_keys().await?, [full.clone(), one]);
    let reads = ApiKeyRecord { scope: KeyScope::ReadOnly, expires: None, ..full };
    write(vec![reads.clone()], vec![key(2, KeyScope::Full).id, key(77, KeyScope::Full).id]).await?;
    assert_eq!(store.api_keys().await?, [reads]);
    Ok(())
}
